//! Scope of a task: the files that its values may name, and the values that inputs may fill.

use agenix_protocol::{documents::InputType, template::TemplatePart};

use crate::{
    inputs::{Types, is_subtype},
    path::Access,
    policy::{Inputs, Policy},
    value_type::ValueType,
    word::Value,
};

/// Working directory of a task.
#[derive(Debug)]
pub(crate) enum WorkingDirectory {
    /// The worker decides.
    Default,
    /// Normalized path.
    Known(String),
    /// An input decides.
    Unknown,
}

/// Task whose values are judged.
#[derive(Debug)]
pub(crate) struct Scope<'p> {
    pub(crate) policy: &'p Policy,
    /// Types of the inputs of the plan.
    pub(crate) types: Types<'p>,
    pub(crate) cwd: WorkingDirectory,
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

impl<'p> Scope<'p> {
    /// Checks an argument or the value of an option, and returns the file that it names.
    pub(crate) fn value<'w>(
        &self,
        value_type: &ValueType,
        value: Value<'w>,
    ) -> Result<Option<(Access, String)>, Fault>
    where
        'p: 'w,
    {
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
    fn text<'w>(&self, value_type: &ValueType, value: Value<'w>) -> Result<(), Fault>
    where
        'p: 'w,
    {
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
        let is_typed = value.only_type(self.types).is_some_and(|input| is_subtype(input, value_type));
        if is_typed || self.policy.inputs == Inputs::Any {
            return Ok(());
        }
        let reason =
            format!("'{}' has to be {value_type}, and its input may be something else", value.shown());
        Err(Fault::new(reason, "give the input a type in the plan that allows nothing else"))
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
        if let Some(path) = value.literal() {
            return Ok((access, self.path(access, path)?));
        }
        let beginning = match value.rest().first() {
            Some(TemplatePart::Field(field)) if value.prefix.is_empty() => self.types.get(field),
            _ => None,
        };
        let is_bounded = self.stays_in_its_directory(beginning, value);
        if self.policy.inputs == Inputs::Typed && !is_bounded {
            let reason = format!("the input in '{}' may name any file", value.shown());
            return Err(Fault::new(reason, "give the input the type path or name in the plan"));
        }
        // The directory of the file has to be allowed, because a file is below its directory.
        let directory_access = if access == Access::WritePrefix { Access::Write } else { access };
        match (beginning, value.prefix.rsplit_once('/')) {
            (Some(InputType::Path { under }), _) => self.path(directory_access, under)?,
            (_, Some(("", _))) => self.path(directory_access, "/")?,
            (_, Some((directory, _))) => self.path(directory_access, directory)?,
            (_, None) if value.prefix.is_empty() && !is_bounded => String::new(),
            (_, None) => self.path(directory_access, ".")?,
        };
        Ok((access, value.shown()))
    }

    /// Returns true if the literal beginning of a value, or the type of the input at its beginning,
    /// decides the directory of the file.
    fn stays_in_its_directory(&self, beginning: Option<&InputType>, value: Value<'_>) -> bool {
        let is_path = matches!(beginning, Some(InputType::Path { .. }));
        value.rest().iter().enumerate().all(|(at, part)| match part {
            TemplatePart::Text(text) => !text.contains('/'),
            TemplatePart::Field(field) => (at == 0 && is_path) || self.types.is_part_of_a_name(field),
            TemplatePart::Slot => true,
        })
    }

    /// Checks a literal path.
    fn path(&self, access: Access, path: &str) -> Result<String, Fault> {
        let cwd = match &self.cwd {
            WorkingDirectory::Unknown if !path.starts_with('/') => {
                let reason = format!("'{path}' is relative to a directory that the policy does not know");
                return Err(Fault::new(reason, "write an absolute path"));
            }
            WorkingDirectory::Known(path) => Some(path.as_str()),
            WorkingDirectory::Default | WorkingDirectory::Unknown => None,
        };
        let checked = self.policy.paths.check(access, path, cwd);
        checked.map_err(|fault| Fault::new(fault.reason, fault.instead))
    }
}
