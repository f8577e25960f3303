//! Compiles the scripted probe service and gRPC's own test service, each with its descriptor set for
//! peers that read one; and what is called of a real etcd.

fn main() -> Result<(), tonic_hedge_build::Error> {
    tonic_hedge_build::configure()
        .compile(&["../proto/hedge/testing/v1/probe.proto"], &["../proto"])?;
    tonic_hedge_build::configure().compile(&["proto/grpc_testing.proto"], &["proto"])?;
    tonic_hedge_build::configure().compile(&["proto/etcd_kv.proto"], &["proto"])
}
