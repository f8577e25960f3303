//! Compiles `.proto` files for `tonic-hedge`: code and descriptor set, without protoc.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     tonic_hedge_build::compile_protos("proto/search.proto")?;
//!     Ok(())
//! }
//! ```
//!
//! The generated module is tonic's own, with one constant more: the descriptor set from which
//! a channel reads which methods are idempotent.
//!
//! ```ignore
//! mod search {
//!     tonic::include_proto!("search");
//! }
//! let channel = HedgedChannel::builder().descriptors(search::FILE_DESCRIPTOR_SET);
//! ```
//!
//! - `import "hedge/v1/hedge.proto";` resolves without an include path; a copy on the include
//!   path goes before the built-in one. No Rust module is generated for it, and none is needed.
//! - The set keeps its custom options: its bytes go from the compiler to the file untouched.
//!   (A set that passes through `prost-types` loses them, and a veto with them.)
//! - [`configure`] takes a [`tonic_prost_build::Builder`] for everything that tonic's generator
//!   can be told. The crate is re-exported, so a `build.rs` needs this one dependency only.

mod error;
mod output;
mod source;

use std::path::{Path, PathBuf};

pub use error::Error;
pub use tonic_prost_build;

/// The text of `hedge/v1/hedge.proto`, for a build that runs another compiler.
pub const HEDGE_PROTO: &str = source::HEDGE_PROTO;

/// Compiles one file with the defaults; imports are looked up in its own directory.
///
/// # Errors
/// As [`Builder::compile`].
pub fn compile_protos(proto: impl AsRef<Path>) -> Result<(), Error> {
    let proto = proto.as_ref();
    let include = proto.parent().unwrap_or(Path::new(""));
    configure().compile(&[proto], &[include])
}

/// The defaults: clients and servers, into cargo's `OUT_DIR`.
pub fn configure() -> Builder {
    Builder {
        tonic: tonic_prost_build::configure(),
        out_dir: None,
    }
}

/// Settings of a compilation; made by [`configure`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    tonic: tonic_prost_build::Builder,
    out_dir: Option<PathBuf>,
}

impl Builder {
    /// Settings of tonic's generator. Its `out_dir` and `file_descriptor_set_path` have no
    /// effect: set [`Builder::out_dir`], and use the generated constant.
    pub fn tonic(mut self, tonic: tonic_prost_build::Builder) -> Self {
        self.tonic = tonic;
        self
    }

    /// Where the files are written. Default: cargo's `OUT_DIR`.
    pub fn out_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.out_dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Compiles `protos`, each of which must be below one of `includes`.
    ///
    /// Writes `<package>.rs` for each package, imported ones among them, as tonic does. A
    /// package with a service also gets `<package>.descriptors.bin`, the set of all files of this
    /// compilation, and in its `.rs` the constant `FILE_DESCRIPTOR_SET` with these bytes. A
    /// package spread over several files must be compiled by one call, or the last call wins.
    ///
    /// Tells cargo to run the build script again when one of the files changes.
    ///
    /// # Errors
    /// A file that can't be read, written or compiled; the text names the file, and the
    /// line and column of what is wrong in it.
    pub fn compile(
        self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), Error> {
        let out_dir = match self.out_dir {
            Some(dir) => dir,
            None => std::env::var_os("OUT_DIR")
                .ok_or_else(Error::no_out_dir)?
                .into(),
        };
        let compiled = source::compile(protos, includes)?;
        for path in &compiled.paths {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        output::write(compiled, self.tonic, &out_dir)
    }
}
