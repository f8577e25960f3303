//! Who the extension traits are for: tonic's own types, so that a method can be added to one.

use tonic::{Request, Response, Status};

pub trait Sealed {}

impl<T> Sealed for Request<T> {}

impl<T> Sealed for Response<T> {}

impl Sealed for Status {}

impl<T> Sealed for Result<Response<T>, Status> {}
