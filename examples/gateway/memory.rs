//! What a gateway has learnt, in a file from one life to the next: limits of lanes, and thresholds.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use tonic_hedge::{Builder, Lanes, LanesLearned, Learned};

use crate::gateway::Gateway;

/// What is older says little of a region's speed, and nothing of how much there is to do.
const MOST_AGE: Duration = Duration::from_secs(600);

/// As it was read; empty without a file. One that has more in it is another program's.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    channel: Option<Learned>,
    lanes: Option<LanesLearned>,
}

impl Memory {
    /// Reads the file, and makes sure that it can be written when this life is over.
    ///
    /// # Errors
    /// The file is none of ours: it is not to be lost at the end of this life. Or its folder is not
    /// there to be written.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let wrong =
            |error: &dyn std::fmt::Display| format!("--learned {}: {error}", path.display());
        let memory = match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| wrong(&error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => return Err(wrong(&error)),
        };
        let new = beside(path);
        let written = fs::write(&new, "").and_then(|()| fs::remove_file(&new));
        written.map_err(|error| wrong(&error))?;
        Ok(memory)
    }

    pub(crate) fn write(gateway: &Gateway, path: &Path) -> io::Result<()> {
        let learned = json!({
            "channel": gateway.channel.learned(),
            "lanes": gateway.lanes.as_ref().map(Lanes::learned),
        });
        // Whole or not at all: a file that is cut off is of no use to the next.
        let new = beside(path);
        fs::write(&new, learned.to_string())?;
        fs::rename(new, path)
    }

    pub(crate) fn of_channel(&self, builder: Builder) -> Builder {
        match &self.channel {
            Some(learned) => builder.resume(learned.clone(), MOST_AGE),
            None => builder,
        }
    }

    pub(crate) fn of_lanes(&self, lanes: &Lanes) {
        if let Some(learned) = &self.lanes {
            lanes.resume_from(learned, MOST_AGE);
        }
    }
}

/// Where the file is written before it has its name: no other file's, as one with another extension
/// might be.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
