//! Some .proto files, compiled, and what protobuf's own library reads in them.

use std::{env, error::Error, fs, path::PathBuf};

use serde_json::Value;

/// What `interop/protos/compile.py` wrote for one case.
pub(crate) struct Case {
    /// The set that protoc made.
    pub(crate) protoc: Vec<u8>,
    /// Whether a file of it has an edition.
    pub(crate) editions: bool,
    pub(crate) methods: Vec<Method>,
    includes: Vec<String>,
    files: Vec<String>,
}

pub(crate) struct Method {
    /// `/package.Service/Method`.
    pub(crate) path: String,
    pub(crate) unary: bool,
    level: i64,
    get: bool,
}

impl Case {
    pub(crate) fn load(name: &str) -> Result<Self, Box<dyn Error>> {
        let folder = PathBuf::from(env::var("INTEROP_OUT")?).join("protos/cases");
        let value: Value = serde_json::from_slice(&fs::read(folder.join(format!("{name}.json")))?)?;
        let methods = value["methods"].as_array().ok_or("no methods")?;
        Ok(Self {
            protoc: fs::read(folder.join(format!("{name}.pb")))?,
            editions: value["editions"].as_bool().ok_or("no editions")?,
            methods: methods
                .iter()
                .map(Method::read)
                .collect::<Option<_>>()
                .ok_or("no method")?,
            includes: texts(&value["includes"]).ok_or("no includes")?,
            files: texts(&value["files"]).ok_or("no files")?,
        })
    }

    /// The set that protox makes, the compiler of tonic-hedge-build.
    pub(crate) fn protox(&self) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut compiler = protox::Compiler::new(&self.includes)?;
        compiler.include_imports(true).open_files(&self.files)?;
        Ok(compiler.encode_file_descriptor_set())
    }
}

impl Method {
    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            path: value["path"].as_str()?.to_owned(),
            unary: value["unary"].as_bool()?,
            level: value["level"].as_i64()?,
            get: value["get"].as_bool()?,
        })
    }

    /// Whether it may be hedged: NO_SIDE_EFFECTS is 1, IDEMPOTENT is 2.
    pub(crate) fn hedges(&self, get_is_trusted: bool) -> bool {
        let declared = matches!(self.level, 1 | 2);
        self.unary && (declared || (get_is_trusted && self.get && self.level == 0))
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let values = value.as_array()?.iter();
    values.map(|it| it.as_str().map(str::to_owned)).collect()
}
