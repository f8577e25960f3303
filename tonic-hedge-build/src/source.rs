//! From `.proto` files to descriptors.

use std::path::{Path, PathBuf};

use protox::file::{
    ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver,
};
use tonic_prost_build::FileDescriptorSet;

use crate::Error;

pub(crate) const HEDGE_PROTO: &str = include_str!("../proto/hedge/v1/hedge.proto");

/// The name under which it is imported.
const HEDGE_PROTO_NAME: &str = "hedge/v1/hedge.proto";

/// What the files say.
pub(crate) struct Compiled {
    /// The set for the code generator: with comments, without `hedge/v1/hedge.proto`, so that
    /// no generated code refers to a module of that name.
    pub(crate) code: FileDescriptorSet,
    /// The set for the channel: everything, options included, in the compiler's own encoding.
    pub(crate) set: Vec<u8>,
    /// The files that were read.
    pub(crate) paths: Vec<PathBuf>,
}

pub(crate) fn compile(
    protos: &[impl AsRef<Path>],
    includes: &[impl AsRef<Path>],
) -> Result<Compiled, Error> {
    let mut resolver = ChainFileResolver::new();
    for include in includes {
        resolver.add(IncludeFileResolver::new(include.as_ref().to_owned()));
    }
    resolver.add(Embedded);
    resolver.add(GoogleFileResolver::new());

    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_files(protos)?;

    // Comments become the documentation of the generated code; the channel has no use for
    // them, and they are most of a set's size.
    let mut code = compiler.include_source_info(true).file_descriptor_set();
    code.file.retain(|file| file.name() != HEDGE_PROTO_NAME);
    let set = compiler
        .include_source_info(false)
        .encode_file_descriptor_set();
    let paths = compiler
        .files()
        .filter_map(|file| file.path().map(Path::to_owned))
        .collect();
    Ok(Compiled { code, set, paths })
}

/// Finds `hedge/v1/hedge.proto` in this crate.
struct Embedded;

impl FileResolver for Embedded {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if name == HEDGE_PROTO_NAME {
            File::from_source(name, HEDGE_PROTO)
        } else {
            Err(protox::Error::file_not_found(name))
        }
    }
}
