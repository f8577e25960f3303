fn main() -> Result<(), tonic_hedge_build::Error> {
    tonic_hedge_build::compile_protos("proto/search.proto")
}
