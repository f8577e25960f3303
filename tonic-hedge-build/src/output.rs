//! From descriptors to the files that a crate includes.

use std::{collections::BTreeSet, fs, io, path::Path};

use prost_build::Module;

use crate::{Error, source::Compiled};

/// The name of the file of protos without a package, and tonic's `include_proto!("_")`.
const NO_PACKAGE: &str = "_";

/// Where our own part of a generated file starts.
const MARKER: &str = "// Added by tonic-hedge-build.\n";

pub(crate) fn write(
    compiled: Compiled,
    tonic: tonic_prost_build::Builder,
    out_dir: &Path,
) -> Result<(), Error> {
    let with_service: BTreeSet<String> = compiled
        .code
        .file
        .iter()
        .filter(|file| !file.service.is_empty())
        .map(|file| Module::from_protobuf_package_name(file.package()).to_file_name_or(NO_PACKAGE))
        .collect();

    tonic
        .out_dir(out_dir)
        // As tonic does when it runs protoc itself: lints are not for generated code.
        .type_attribute(".", "#[allow(clippy::all)]")
        .compile_fds(compiled.code)
        .map_err(|error| Error::io(out_dir, error))?;

    for code in with_service {
        // One copy for each package: a file that two compilations share would hold the set of
        // the later one.
        let set = format!("{}.descriptors.bin", code.trim_end_matches(".rs"));
        let path = out_dir.join(&set);
        fs::write(&path, &compiled.set).map_err(|error| Error::io(&path, error))?;

        let path = out_dir.join(&code);
        append_constant(&path, &set).map_err(|error| Error::io(&path, error))?;
    }
    Ok(())
}

/// Adds the constant to a generated file, which doesn't exist if the generator was told to
/// make neither clients nor servers.
fn append_constant(code: &Path, set: &str) -> io::Result<()> {
    let generated = match fs::read_to_string(code) {
        Ok(generated) => generated,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    // A file that the generator no longer makes still has the constant of the last run.
    let generated = generated.split(MARKER).next().unwrap_or_default();
    // The path is relative to the file that holds the macro, so it survives a move of both.
    let constant = format!(
        "/// The descriptor set of this module's `.proto` files and of all that they import, custom
/// options included.
pub const FILE_DESCRIPTOR_SET: &[u8] = ::core::include_bytes!({set:?});
"
    );
    fs::write(code, format!("{generated}{MARKER}{constant}"))
}
