//! JSON whose objects have each key once: of two, each reader would take another.

use std::{collections::HashSet, fmt};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::ServiceConfigError;

/// Reads it.
///
/// # Errors
/// It is no JSON, or a key comes twice in one object.
pub(super) fn read(text: &str) -> Result<Value, ServiceConfigError> {
    // Two passes: `Value` alone knows how numbers come, which another crate's features can change.
    serde_json::from_str::<KeysOnce>(text)
        .and_then(|KeysOnce| serde_json::from_str(text))
        .map_err(|error| ServiceConfigError::new("", format_args!("not read as JSON: {error}")))
}

/// Any value, looked at for its keys alone.
struct KeysOnce;

impl<'de> Deserialize<'de> for KeysOnce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Keys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = KeysOnce;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_i64<E>(self, _: i64) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_u64<E>(self, _: u64) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_f64<E>(self, _: f64) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_str<E>(self, _: &str) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_unit<E>(self) -> Result<KeysOnce, E> {
        Ok(KeysOnce)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<KeysOnce, A::Error> {
        while items.next_element::<KeysOnce>()?.is_some() {}
        Ok(KeysOnce)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<KeysOnce, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format_args!("{key:?} is given twice")));
            }
            keys.insert(key);
            fields.next_value::<KeysOnce>()?;
        }
        Ok(KeysOnce)
    }
}
