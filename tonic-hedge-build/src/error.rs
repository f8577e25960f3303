//! What can go wrong in a build script.

use std::{
    error, fmt, io,
    path::{Path, PathBuf},
};

/// A compilation failed.
///
/// Its text names the file, and where the compiler knows them the line and column, like
/// `search.proto:12:14: name 'Serch' is not defined`. `Debug` prints the same, since that is
/// what cargo shows of a build script whose `main` returns it.
pub struct Error {
    kind: Kind,
}

enum Kind {
    Compile(protox::Error),
    Io { path: PathBuf, error: io::Error },
    NoOutDir,
}

impl Error {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        Self {
            kind: Kind::Io { path, error },
        }
    }

    pub(crate) fn no_out_dir() -> Self {
        Self {
            kind: Kind::NoOutDir,
        }
    }
}

impl From<protox::Error> for Error {
    fn from(error: protox::Error) -> Self {
        Self {
            kind: Kind::Compile(error),
        }
    }
}

/// So that `?` works in a `main` that returns `io::Result`.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::other(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            // Its `Display` leaves out the position, its `Debug` puts it in front; an
            // unexpected end of file has none, and then not even the name.
            Kind::Compile(error) => {
                let text = format!("{error:?}");
                match error.file() {
                    Some(file) if !text.contains(file) => write!(f, "{file}: {text}"),
                    _ => f.write_str(&text),
                }
            }
            Kind::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Kind::NoOutDir => {
                f.write_str("OUT_DIR is not set: call this from build.rs, or set Builder::out_dir")
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.kind {
            Kind::Io { error, .. } => Some(error),
            Kind::Compile(_) | Kind::NoOutDir => None,
        }
    }
}
