//! Small .proto files, compiled by protox; and bytes by hand for what it refuses.

mod damage;
mod levels;
mod names;
mod policies;
mod wild;

use bytes::Bytes;
use prost::Message;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use super::{DescriptorError, MethodDescriptor, merge, wire};

/// A set as a channel takes it.
fn read(set: &[u8]) -> Result<Vec<MethodDescriptor>, DescriptorError> {
    let methods = super::read(set)?;
    methods.iter().try_for_each(MethodDescriptor::check)?;
    Ok(merge([methods]))
}

/// Compiles `files` (name and text), with `hedge/v1/hedge.proto` there to be imported.
fn compiler(files: &[(&str, &str)]) -> protox::Compiler {
    struct Fixtures(Vec<(String, String)>);

    impl FileResolver for Fixtures {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            match self.0.iter().find(|(file, _)| file == name) {
                Some((_, text)) => File::from_source(name, text),
                None => Err(protox::Error::file_not_found(name)),
            }
        }
    }

    let mut fixtures = vec![(
        "hedge/v1/hedge.proto".to_owned(),
        include_str!("../../../proto/hedge/v1/hedge.proto").to_owned(),
    )];
    fixtures.extend(
        files
            .iter()
            .map(|(n, t)| ((*n).to_owned(), (*t).to_owned())),
    );
    let mut resolver = ChainFileResolver::new();
    resolver.add(Fixtures(fixtures));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true);
    if let Err(error) = compiler.open_files(files.iter().map(|(name, _)| name)) {
        panic!("{error:?}");
    }
    compiler
}

fn compile(files: &[(&str, &str)]) -> Vec<u8> {
    compiler(files).encode_file_descriptor_set()
}

fn probe() -> Vec<u8> {
    let text = include_str!("../../../proto/hedge/testing/v1/probe.proto");
    compile(&[("hedge/testing/v1/probe.proto", text)])
}

/// A proto3 file with a message `M` and a service `S` of `methods`.
fn service(methods: &str) -> String {
    format!(
        "syntax = \"proto3\"; package t; import \"hedge/v1/hedge.proto\"; message M {{}} service S {{ {methods} }}"
    )
}

fn read_service(methods: &str) -> Result<Vec<MethodDescriptor>, super::DescriptorError> {
    read(&compile(&[("t.proto", &service(methods))]))
}

fn error_of(methods: &str) -> String {
    match read_service(methods) {
        Ok(methods) => panic!("accepted: {methods:?}"),
        Err(error) => error.to_string(),
    }
}

fn method<'a>(methods: &'a [MethodDescriptor], path: &str) -> &'a MethodDescriptor {
    match methods.iter().find(|method| method.path == path) {
        Some(method) => method,
        None => panic!("no {path} in {methods:?}"),
    }
}

/// A file by hand: service `t.S` with the method `Call`, whose options are `options`.
fn by_hand(dependency: &[&str], options: &[&[u8]]) -> wire::File {
    wire::File {
        name: "t.proto".to_owned(),
        package: "t".to_owned(),
        dependency: dependency.iter().map(|name| (*name).to_owned()).collect(),
        service: vec![wire::Service {
            name: "S".to_owned(),
            method: vec![wire::Method {
                name: "Call".to_owned(),
                options: options.iter().map(|o| Bytes::copy_from_slice(o)).collect(),
                ..wire::Method::default()
            }],
            ..wire::Service::default()
        }],
        ..wire::File::default()
    }
}

fn encode(files: &[wire::File]) -> Vec<u8> {
    wire::Set {
        file: files.to_vec(),
    }
    .encode_to_vec()
}

/// `MethodOptions` with this level and this `hedge.v1.Options`.
fn method_options(level: Option<i32>, hedge: &wire::Options) -> Vec<u8> {
    wire::MethodOptions {
        level,
        hedge: vec![hedge.encode_to_vec().into()],
        ..wire::MethodOptions::default()
    }
    .encode_to_vec()
}

const IMPORT: &str = "hedge/v1/hedge.proto";
