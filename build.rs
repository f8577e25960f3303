//! Compiles `proto/` for this crate's own tests, examples and benches, behind `__proto`.
//! A user of the crate compiles no code generator.

#[cfg(feature = "__proto")]
fn main() -> Result<(), tonic_hedge_build::Error> {
    println!("cargo:rerun-if-changed=build.rs");
    let protos = [
        "proto/hedge/testing/v1/probe.proto",
        "proto/gateway/v1/chat.proto",
    ];
    tonic_hedge_build::configure().compile(&protos, &["proto"])
}

#[cfg(not(feature = "__proto"))]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}
