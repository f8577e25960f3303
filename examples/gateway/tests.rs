//! The example's parts.
