//! Compiles the scripted probe service, and its descriptor set for peers that read one.

fn main() -> Result<(), tonic_hedge_build::Error> {
    tonic_hedge_build::configure()
        .compile(&["../proto/hedge/testing/v1/probe.proto"], &["../proto"])
}
