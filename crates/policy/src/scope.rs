//! Scope of a task: the files that its values may name, and the values that inputs may fill.

use crate::{
    path::Access,
    policy::{Inputs, Policy},
    value_type::ValueType,
    word::Value,
};

/// Task whose values are judged.
#[derive(Debug)]
pub(crate) struct Scope<'p> {
    pub(crate) policy: &'p Policy,
    /// Normalized working directory, if the task names one.
    pub(crate) cwd: Option<String>,
}

/// Value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: String,
    pub(crate) instead: Option<String>,
}

impl Fault {
    pub(crate) fn new(reason: impl Into<String>, instead: impl Into<String>) -> Self {
        Self { reason: reason.into(), instead: Some(instead.into()) }
    }
}

impl Scope<'_> {
    /// Checks an argument or the value of an option, and returns the file that it names.
    pub(crate) fn value(
        &self,
        value_type: &ValueType,
        value: Value<'_>,
    ) -> Result<Option<(Access, String)>, Fault> {
        if value.prefix.contains('\0') {
            return Err(Fault::new("the argument contains a NUL", "leave the NUL out"));
        }
        match value_type {
            // Standard input is no file.
            ValueType::Read if value.literal() == Some("-") => Ok(None),
            ValueType::Read => self.argument_file(Access::Read, value),
            ValueType::Write => self.argument_file(Access::Write, value),
            ValueType::Prefix => self.argument_file(Access::WritePrefix, value),
            other => self.text(other, value).map(|()| None),
        }
    }

    /// Checks a value that names no file.
    fn text(&self, value_type: &ValueType, value: Value<'_>) -> Result<(), Fault> {
        if let Some(text) = value.literal() {
            let wrong = |reason| Fault::new(reason, format!("write {value_type}"));
            return value_type.check(text).map_err(wrong);
        }
        if value_type.is_any_text() {
            return Ok(());
        }
        if value_type.is_code() {
            let reason = format!("'{}' fills code of the type {value_type} with an input", value.shown());
            return Err(Fault::new(reason, "write the whole text in the plan"));
        }
        match self.policy.inputs {
            Inputs::Any => Ok(()),
            Inputs::Typed => {
                let reason = format!("'{}' has no type, and has to be {value_type}", value.shown());
                Err(Fault::new(reason, format!("write {value_type} in the plan")))
            }
        }
    }

    /// Checks an argument that names a file.
    fn argument_file(&self, access: Access, value: Value<'_>) -> Result<Option<(Access, String)>, Fault> {
        // Old forms of options begin with +, and some tools read options from the file after @.
        if value.prefix.starts_with(['+', '@']) {
            let reason = format!("'{}' may have another meaning than a file", value.shown());
            return Err(Fault::new(reason, format!("write ./{}", value.shown())));
        }
        self.file(access, value).map(Some)
    }

    /// Checks a value that names a file, and returns the normalized path.
    pub(crate) fn file(&self, access: Access, value: Value<'_>) -> Result<(Access, String), Fault> {
        let check = |path: &str| {
            let checked = self.policy.paths.check(access, path, self.cwd.as_deref());
            checked.map_err(|fault| Fault::new(fault.reason, fault.instead))
        };
        if let Some(path) = value.literal() {
            return Ok((access, check(path)?));
        }
        if self.policy.inputs == Inputs::Typed {
            let reason = format!("the input in '{}' has no type, so it may name any file", value.shown());
            return Err(Fault::new(reason, "write the path in the plan, or pass the file as stdin"));
        }
        // The literal directory in front of the input has to be allowed even so.
        if let Some((directory, _)) = value.prefix.rsplit_once('/') {
            check(if directory.is_empty() { "/" } else { directory })?;
        }
        Ok((access, value.shown()))
    }
}
