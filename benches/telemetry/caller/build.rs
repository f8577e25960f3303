//! Compiles the probe service.

fn main() -> Result<(), tonic_hedge_build::Error> {
    let protos = "../../../proto";
    let probe = format!("{protos}/hedge/testing/v1/probe.proto");
    tonic_hedge_build::configure().compile(&[probe.as_str()], &[protos])
}
