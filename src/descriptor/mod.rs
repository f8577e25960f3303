//! What the .proto says: which methods there are, and which may be repeated, with what policy.
//!
//! A descriptor set is read with a few messages of our own that declare the hedging option as
//! an ordinary field ([`wire`]). It takes microseconds, needs no imports in the set, and no
//! reflection. Reading fails rather than guesses: what is lost on the way to us is most likely
//! a veto.

mod error;
#[cfg(feature = "__fuzz")]
pub(crate) mod fuzz;
mod merge;
mod method;
mod options;
#[cfg(test)]
mod tests;
mod wire;

use bytes::Bytes;
use prost::Message;

pub use self::error::DescriptorError;
use self::error::Kind;
pub(crate) use self::{
    merge::merge,
    method::{IdempotencyLevel, MethodDescriptor, Repeatability},
    options::Options,
};

/// The longest set that is read. The largest public collections of protos come to tens of MiB;
/// what is longer is no descriptor set, and reading takes memory in proportion.
const MAX_SET: usize = 64 << 20;

/// The methods of an encoded `FileDescriptorSet`, unchecked ([`MethodDescriptor::check`]) and as
/// often as they are there ([`merge`]).
///
/// # Errors
/// Bytes that aren't a whole set; a set that lost its custom options; an option that can't be
/// read.
pub(crate) fn read(set: &[u8]) -> Result<Vec<MethodDescriptor>, DescriptorError> {
    if set.is_empty() {
        return Err(Kind::Empty.into());
    }
    if set.len() > MAX_SET {
        return Err(Kind::TooLarge(set.len()).into());
    }
    // One copy: everything below is slices of it.
    let files = wire::Set::decode(Bytes::copy_from_slice(set))
        .map_err(Kind::NotASet)?
        .file;
    // Any bytes that happen to parse give an empty set, or files with holes.
    if files.is_empty() || files.iter().any(wire::File::is_nameless) {
        return Err(Kind::Nameless.into());
    }

    let importer = files.iter().find(|file| file.imports_options());
    let mut methods = Vec::new();
    let mut has_services = false;
    let mut has_options = false;
    for file in &files {
        let carries = read_file(file, importer.is_some(), &mut methods)?;
        // Losing extensions is all or nothing for one file, but sets can be concatenated.
        if file.imports_options() && !file.service.is_empty() && !carries {
            return Err(Kind::LostExtensions(file.name.clone()).into());
        }
        has_services |= !file.service.is_empty();
        has_options |= carries;
    }
    // A file can also see the options through another's public import.
    if let Some(importer) = importer
        && has_services
        && !has_options
    {
        return Err(Kind::LostExtensions(importer.name.clone()).into());
    }
    Ok(methods)
}

/// Adds a file's methods; whether it carries an option of ours.
fn read_file(
    file: &wire::File,
    imported: bool,
    methods: &mut Vec<MethodDescriptor>,
) -> Result<bool, DescriptorError> {
    let mut has_options = false;
    for service in &file.service {
        let name = match file.package.as_str() {
            "" => service.name.clone(),
            package => format!("{package}.{}", service.name),
        };
        let at = || format!("service {name}");
        let raw = wire::joined::<wire::ServiceOptions>(&service.options)
            .map_err(|error| Kind::Unreadable { at: at(), error })?;
        has_options |= !raw.hedge.is_empty();
        let defaults = read_options(&raw.hedge, &raw.uninterpreted, imported, &at)?;
        defaults
            .validate()
            .map_err(|error| Kind::Value { at: at(), error })?;

        for method in &service.method {
            let path = format!("/{name}/{}", method.name);
            let at = || format!("method {path}");
            let raw = wire::joined::<wire::MethodOptions>(&method.options)
                .map_err(|error| Kind::Unreadable { at: at(), error })?;
            has_options |= !raw.hedge.is_empty();
            let options = read_options(&raw.hedge, &raw.uninterpreted, imported, &at)?;
            let descriptor = MethodDescriptor {
                path,
                client_streaming: method.client_streaming,
                server_streaming: method.server_streaming,
                level: IdempotencyLevel::from_number(raw.level),
                http_get: raw.is_http_get(),
                method: options,
                service: defaults.clone(),
            };
            methods.push(descriptor);
        }
    }
    Ok(has_options)
}

fn read_options(
    raw: &[Bytes],
    uninterpreted: &[wire::Uninterpreted],
    imported: bool,
    at: &dyn Fn() -> String,
) -> Result<Options, DescriptorError> {
    // A compiler that stopped half-way leaves options as text; ours might be a veto.
    if uninterpreted.iter().any(wire::Uninterpreted::is_ours) {
        return Err(Kind::Uninterpreted { at: at() }.into());
    }
    if raw.is_empty() {
        return Ok(Options::default());
    }
    // The number is from the range that anyone may use: without the import it may be another's
    // option, whose fields mean something else.
    if !imported {
        return Err(Kind::NotImported { at: at() }.into());
    }
    let raw = wire::joined(raw).map_err(|error| Kind::Unreadable { at: at(), error })?;
    Options::parse(raw).map_err(|error| Kind::Value { at: at(), error }.into())
}
