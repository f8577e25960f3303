//! stub

// Nothing reads it yet but its own tests: the method table will.
#[allow(dead_code)]
mod descriptor;

pub use descriptor::DescriptorError;
