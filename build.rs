//! Compiles `proto/` for this crate's own tests, examples and benches, behind `__proto`.
//! A user of the crate compiles no code generator.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}
