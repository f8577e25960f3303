//! Small `.proto` files, compiled where they are needed.

use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

/// `google.api.http`, as far as the tests use it.
const HTTP: &str = r#"
    syntax = "proto3";
    package google.api;
    import "google/protobuf/descriptor.proto";
    message HttpRule { oneof pattern { string get = 2; string post = 4; } string body = 7; }
    extend google.protobuf.MethodOptions { HttpRule http = 72295728; }
"#;

/// The descriptor set of one service of `package`, whose `methods` take and give an `Empty`.
pub fn compiled(package: &str, service: &str, methods: &str) -> Vec<u8> {
    struct Sources(String);
    impl FileResolver for Sources {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            let text = match name {
                "service.proto" => &self.0,
                "google/api/annotations.proto" => HTTP,
                "hedge/v1/hedge.proto" => include_str!("../../proto/hedge/v1/hedge.proto"),
                _ => return Err(protox::Error::file_not_found(name)),
            };
            File::from_source(name, text)
        }
    }
    // A set that imports the options and has none has lost them.
    let import = |file: &str, used: &str| match methods.contains(used) {
        true => format!("import \"{file}\";"),
        false => String::new(),
    };
    let hedge = import("hedge/v1/hedge.proto", "hedge.v1");
    let http = import("google/api/annotations.proto", "google.api");
    let source = format!(
        "syntax = \"proto3\"; package {package}; {hedge} {http}
         message Empty {{}} service {service} {{ {methods} }}"
    );
    let mut resolver = ChainFileResolver::new();
    resolver.add(Sources(source));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true);
    compiler.open_file("service.proto").unwrap();
    compiler.encode_file_descriptor_set()
}
