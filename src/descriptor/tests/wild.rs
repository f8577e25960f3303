//! Small files with what makes real ones hard: others' options and imports, old syntax, odd names.
//! `interop/protos` reads the real ones.

use super::*;
use crate::descriptor::Repeatability::{self, Repeatable, Unmarked};

/// `google/api/annotations.proto`, as far as it matters.
const ANNOTATIONS: (&str, &str) = (
    "google/api/annotations.proto",
    r#"syntax = "proto3"; package google.api; import "google/protobuf/descriptor.proto";
       message HttpRule {
         string selector = 1;
         oneof pattern { string get = 2; string put = 3; string post = 4; }
         string body = 7;
         repeated HttpRule additional_bindings = 11;
       }
       extend google.protobuf.MethodOptions {
         HttpRule http = 72295728;
         repeated string method_signature = 1051;
       }
       extend google.protobuf.ServiceOptions { string default_host = 1049; }"#,
);

/// The methods by path, as a channel reads them.
fn repeatable(files: &[(&str, &str)]) -> Vec<(String, Repeatability)> {
    let methods = read(&compile(files)).unwrap();
    let told = methods
        .iter()
        .map(|it| (it.path.clone(), it.repeatability()));
    told.collect()
}

fn expect(files: &[(&str, &str)], expected: &[(&str, Repeatability)]) {
    let told = repeatable(files);
    let told: Vec<_> = told.iter().map(|(path, it)| (path.as_str(), *it)).collect();
    assert_eq!(told, expected);
}

/// As in googleapis: bindings on every method, a host, signatures, no level but one.
#[test]
fn cf11_googleapis() {
    let text = r#"syntax = "proto3"; package google.shelf.v1; import "google/api/annotations.proto";
        service Shelves {
          option (google.api.default_host) = "shelf.example.com";
          rpc GetShelf(Shelf) returns (Shelf) {
            option (google.api.http) = { get: "/v1/{name=shelves/*}" additional_bindings { get: "/v1/s" } };
            option (google.api.method_signature) = "name";
            option (google.api.method_signature) = "name,view";
          }
          rpc CountShelves(Shelf) returns (Shelf) {
            option (google.api.http).get = "/v1/count";
            option idempotency_level = NO_SIDE_EFFECTS;
          }
          rpc MoveShelf(Shelf) returns (Shelf) {
            option (google.api.http) = { post: "/v1/{name=shelves/*}:move" body: "*" };
          }
          rpc Pull(stream Shelf) returns (stream Shelf) {}
        }
        message Shelf { string name = 1; }"#;
    expect(
        &[ANNOTATIONS, ("google/shelf/v1/shelf.proto", text)],
        &[
            ("/google.shelf.v1.Shelves/CountShelves", Repeatable),
            ("/google.shelf.v1.Shelves/GetShelf", Unmarked),
            ("/google.shelf.v1.Shelves/MoveShelf", Unmarked),
            ("/google.shelf.v1.Shelves/Pull", Unmarked),
        ],
    );
}

/// As in etcd: options of a generator in proto2, reads that are POST, a service named as its method.
#[test]
fn cf11_gogoproto() {
    let gogo = r#"syntax = "proto2"; package gogoproto; import "google/protobuf/descriptor.proto";
        extend google.protobuf.FileOptions { optional bool marshaler_all = 63017; }
        extend google.protobuf.FieldOptions { optional bool nullable = 65001; }
        message Doc { optional string title = 1; map<string, string> tags = 2; }
        extend google.protobuf.FileOptions { optional Doc doc = 1042; }"#;
    let text = r#"syntax = "proto3"; package kvpb;
        import "gogoproto/gogo.proto"; import "google/api/annotations.proto";
        option (gogoproto.marshaler_all) = true;
        option (gogoproto.doc) = { title: "KV"; tags: { key: "a", value: "b" }; };
        service KV {
          // A read, though it is a POST.
          rpc Range(Key) returns (Key) {
              option (google.api.http) = { post: "/v3/kv/range" body: "*" };
          }
        }
        service Watch { rpc Watch(stream Key) returns (stream Key) {} }
        message Key { bytes key = 1 [(gogoproto.nullable) = false]; }"#;
    expect(
        &[
            ANNOTATIONS,
            ("gogoproto/gogo.proto", gogo),
            ("kvpb/rpc.proto", text),
        ],
        &[
            ("/kvpb.KV/Range", Unmarked),
            ("/kvpb.Watch/Watch", Unmarked),
        ],
    );
}

/// As protovalidate: rules on fields, in files with services and in files without.
#[test]
fn cf11_protovalidate() {
    let rules = r#"syntax = "proto2"; package buf.validate; import "google/protobuf/descriptor.proto";
        import "google/protobuf/duration.proto";
        extend google.protobuf.MessageOptions { optional MessageRules message = 1159; }
        extend google.protobuf.FieldOptions { optional FieldRules field = 1159; }
        message MessageRules { repeated Rule cel = 3; }
        message Rule { optional string id = 1; optional string expression = 3; }
        message FieldRules {
          repeated Rule cel = 23;
          oneof type { StringRules string = 14; DoubleRules double = 2; DurationRules duration = 21; }
        }
        message StringRules { optional uint64 min_len = 2; optional string pattern = 6; extensions 1000 to max; }
        message DoubleRules { optional double lte = 2; repeated double in = 6; optional bool finite = 8; }
        message DurationRules { optional google.protobuf.Duration gt = 5; }"#;
    let text = r#"syntax = "proto3"; package acme.v1; import "buf/validate/validate.proto";
        import "google/protobuf/duration.proto";
        service Users {
          rpc Find(User) returns (User) { option idempotency_level = NO_SIDE_EFFECTS; }
          rpc Replace(User) returns (User) { option idempotency_level = IDEMPOTENT; }
          rpc Add(User) returns (User);
        }
        message User {
          option (buf.validate.message).cel = { id: "a" expression: "this.name != '' && this.size < 1.0" };
          string name = 1 [(buf.validate.field).string = { min_len: 1 pattern: "^[^\\x00-\\x1f\"]+$" }];
          double size = 2 [(buf.validate.field).double = { lte: inf in: [nan, -1e308, 0x1] }];
          google.protobuf.Duration ttl = 3 [(buf.validate.field).duration.gt = { seconds: -315576000000 nanos: -1 }];
        }"#;
    expect(
        &[
            ("buf/validate/validate.proto", rules),
            ("acme/v1/users.proto", text),
        ],
        &[
            ("/acme.v1.Users/Add", Unmarked),
            ("/acme.v1.Users/Find", Repeatable),
            ("/acme.v1.Users/Replace", Repeatable),
        ],
    );
    let alone = [("buf/validate/validate.proto", rules)];
    expect(&alone, &[]);
}

/// Old files: no syntax line, the package after the options, required fields, groups, extensions of
/// methods with defaults, `returns(` without a space, semicolons where none need be.
#[test]
fn cf11_proto2() {
    let text = r#"option java_package = "org.example"; option java_generic_services = true;;
        package old.hdfs;
        import "google/protobuf/descriptor.proto";
        message Request { required string path = 1; optional group Range = 2 { required int64 end = 1; } extensions 100 to max; }
        message Response { optional bytes data = 1 [default = "\001\xff"]; }
        extend Request { repeated Extra extra = 100; }
        message Extra { extend Request { optional Extra nested = 101; } }
        enum Kind { NONE = 0; READ = -1; }
        message Aggregate { optional int32 i = 1; extensions 5; extend Aggregate { optional Kind kind = 5; } }
        extend google.protobuf.MethodOptions { optional Kind kind = 7890860 [default = READ]; optional Aggregate all = 15497145; }
        service ReadProtocol {
          rpc getStatus(Request) returns(Response) { option (kind) = READ; option (all) = { i: -2 [old.hdfs.Aggregate.kind]: READ }; };
          rpc read_block(.old.hdfs.Request) returns(old.hdfs.Response) { option deprecated = true; option idempotency_level = NO_SIDE_EFFECTS; }
        };"#;
    expect(
        &[("ReadProtocol.proto", text)],
        &[
            ("/old.hdfs.ReadProtocol/getStatus", Unmarked),
            ("/old.hdfs.ReadProtocol/read_block", Repeatable),
        ],
    );
}

/// No package, and every kind of option on one method.
#[test]
fn cf11_no_package() {
    let text = r#"syntax = "proto3"; import "google/api/annotations.proto";
        message Empty {}
        service Hello {
          rpc Hello(Empty) returns (Empty) {
            option deprecated = true;
            option idempotency_level = NO_SIDE_EFFECTS;
            option (google.api.http) = { post: "/h" body: "*" additional_bindings { get: "/h" } };
            option (google.api.method_signature) = "a";
          }
          rpc HelloGet(Empty) returns (Empty) { option (google.api.http) = { get: "/h" }; }
        }"#;
    expect(
        &[ANNOTATIONS, ("hello.proto", text)],
        &[("/Hello/Hello", Repeatable), ("/Hello/HelloGet", Unmarked)],
    );
}

/// The services are at the bottom of the imports, the option is seen through public ones, and
/// packages are nested in each other.
#[test]
fn cf11_deep_imports_and_nested_packages() {
    let service = |package: &str, import: &str, level: &str| {
        format!(
            "syntax = \"proto3\"; package {package}; {import} message M {{}}
             service S {{ rpc Get(M) returns (M) {{ {level} }} }}"
        )
    };
    let option = "option (hedge.v1.method).idempotent = true;";
    let d = service("a.b.c.d", "import \"relay.proto\";", option);
    let c = service("a.b.c", "import public \"a/b/c/d/d.proto\";", "");
    let b = service(
        "a.b_c.v1",
        "import \"a/b/c/c.proto\";",
        "option idempotency_level = IDEMPOTENT;",
    );
    let a = service("a", "import \"a/b_c/v1/b.proto\";", "");
    expect(
        &[
            (
                "relay.proto",
                "syntax = \"proto3\"; import public \"hedge/v1/hedge.proto\";",
            ),
            ("a/b/c/d/d.proto", &d),
            ("a/b/c/c.proto", &c),
            ("a/b_c/v1/b.proto", &b),
            ("a/a.proto", &a),
        ],
        &[
            ("/a.S/Get", Unmarked),
            ("/a.b.c.S/Get", Unmarked),
            ("/a.b.c.d.S/Get", Repeatable),
            ("/a.b_c.v1.S/Get", Repeatable),
        ],
    );
}
