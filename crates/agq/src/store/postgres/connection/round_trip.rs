//! Statements that a session sends in one message, with their values, and whose answers arrive
//! together.
//!
//! The driver sends one statement with bound values at a time. A round trip is a script of the
//! simple query protocol instead: the script executes prepared statements with literal values. The
//! database stops at the first error, so a `COMMIT` at the end runs only if all other statements
//! succeeded.

use std::{collections::HashSet, fmt::Write};

use futures_util::TryStreamExt;
use sqlx::{
    AssertSqlSafe, Either, Error, Executor, PgConnection, Postgres, Result,
    postgres::{PgArguments, PgRow},
    query,
    query::Query,
    raw_sql,
};

pub(crate) type Sql<'q> = Query<'q, Postgres, PgArguments>;

/// Maximum number of bytes of a script. The values of a larger script are bound, in one message for
/// each statement, because literals of large values take longer than these messages.
const MAX_BYTES: usize = 64 << 10;

/// Statement that a session prepares once.
#[derive(Debug)]
pub(crate) struct PreparedStatement {
    /// Name, which no other statement has.
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// Value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Param {
    Flag(bool),
    Short(i16),
    Wide(i64),
    Text(String),
    Flags(Vec<bool>),
    Shorts(Vec<i16>),
    Integers(Vec<i32>),
    Wides(Vec<i64>),
    OptionalWides(Vec<Option<i64>>),
    Texts(Vec<String>),
    OptionalTexts(Vec<Option<String>>),
    Binaries(Vec<Vec<u8>>),
}

enum RoundTripStatement {
    /// One statement without parameters.
    Plain(&'static str),
    Call(&'static PreparedStatement, Vec<Param>),
}

/// Statements of one round trip to the database.
#[derive(Default)]
pub(crate) struct RoundTrip(Vec<RoundTripStatement>);

/// Rows of each statement of a round trip, in order.
pub(crate) type Answers = Vec<Vec<PgRow>>;

/// Failure of a round trip, with the number of its statements that succeeded.
pub(crate) struct RoundTripFailure {
    pub(crate) error: Error,
    pub(crate) succeeded: usize,
    /// True if all of its statements were sent, so that they may succeed after the failure.
    pub(crate) has_sent_all: bool,
}

impl RoundTrip {
    pub(crate) fn plain(&mut self, sql: &'static str) {
        self.0.push(RoundTripStatement::Plain(sql));
    }

    /// Adds a call, and returns the place of its answer.
    pub(crate) fn call(&mut self, statement: &'static PreparedStatement, params: Vec<Param>) -> usize {
        self.0.push(RoundTripStatement::Call(statement, params));
        self.0.len() - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the statements of the round trip that are not in `prepared`, each once.
    pub(super) fn unprepared(&self, prepared: &HashSet<&'static str>) -> Vec<&'static PreparedStatement> {
        let mut found: Vec<&'static PreparedStatement> = Vec::new();
        for step in &self.0 {
            if let RoundTripStatement::Call(statement, _) = step
                && !prepared.contains(statement.name)
                && found.iter().all(|other| other.name != statement.name)
            {
                found.push(statement);
            }
        }
        found
    }

    /// Returns the script of the round trip, or `None` if its values have to be bound.
    pub(super) fn script(&self) -> Option<String> {
        if let [RoundTripStatement::Call(..)] = &*self.0 {
            return None;
        }
        let mut script = String::new();
        for step in &self.0 {
            match step {
                RoundTripStatement::Plain(sql) => script.push_str(sql),
                RoundTripStatement::Call(statement, params) => {
                    let _always_written = write!(script, "EXECUTE {}", statement.name);
                    for (at, param) in params.iter().enumerate() {
                        script.push(if at == 0 { '(' } else { ',' });
                        param.write(&mut script);
                        if script.len() > MAX_BYTES {
                            return None;
                        }
                    }
                    script.push_str(if params.is_empty() { "" } else { ")" });
                }
            }
            script.push(';');
        }
        // The protocol ends a script at its first NUL. The database refuses a NUL in a bound value.
        (!script.contains('\0')).then_some(script)
    }

    /// Returns the statements with bound values.
    pub(super) fn into_queries(self) -> impl Iterator<Item = Sql<'static>> {
        self.0.into_iter().map(|step| match step {
            RoundTripStatement::Plain(sql) => query(sql).persistent(false),
            RoundTripStatement::Call(statement, params) => statement.query(params),
        })
    }
}

impl PreparedStatement {
    /// Returns the statement as a query with bound values.
    pub(crate) fn query(&self, params: Vec<Param>) -> Sql<'static> {
        params.into_iter().fold(query(self.sql), |sql, param| param.bind(sql))
    }
}

impl Param {
    pub(crate) fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        Self::Texts(texts.into_iter().map(str::to_owned).collect())
    }

    fn bind(self, sql: Sql<'_>) -> Sql<'_> {
        match self {
            Self::Flag(value) => sql.bind(value),
            Self::Short(value) => sql.bind(value),
            Self::Wide(value) => sql.bind(value),
            Self::Text(value) => sql.bind(value),
            Self::Flags(values) => sql.bind(values),
            Self::Shorts(values) => sql.bind(values),
            Self::Integers(values) => sql.bind(values),
            Self::Wides(values) => sql.bind(values),
            Self::OptionalWides(values) => sql.bind(values),
            Self::Texts(values) => sql.bind(values),
            Self::OptionalTexts(values) => sql.bind(values),
            Self::Binaries(values) => sql.bind(values),
        }
    }

    /// Appends the value as a literal. Sessions have `standard_conforming_strings` on.
    fn write(&self, script: &mut String) {
        script.push('\'');
        match self {
            Self::Flag(value) => write_shown(script, value),
            Self::Short(value) => write_shown(script, value),
            Self::Wide(value) => write_shown(script, value),
            Self::Text(value) => script.push_str(&value.replace('\'', "''")),
            Self::Flags(values) => write_array(script, values, write_shown),
            Self::Shorts(values) => write_array(script, values, write_shown),
            Self::Integers(values) => write_array(script, values, write_shown),
            Self::Wides(values) => write_array(script, values, write_shown),
            Self::OptionalWides(values) => write_array(script, values, |script, value| {
                write_optional(script, value.as_ref(), write_shown);
            }),
            Self::Texts(values) => write_array(script, values, |script, value| write_text(script, value)),
            Self::OptionalTexts(values) => write_array(script, values, |script, value| {
                write_optional(script, value.as_deref(), write_text);
            }),
            Self::Binaries(values) => {
                write_array(script, values, |script, value| write_binary(script, value));
            }
        }
        script.push('\'');
    }
}

fn write_array<T>(script: &mut String, values: &[T], write: impl Fn(&mut String, &T)) {
    script.push('{');
    for (at, value) in values.iter().enumerate() {
        script.push_str(if at == 0 { "" } else { "," });
        write(script, value);
    }
    script.push('}');
}

fn write_shown(script: &mut String, value: &impl std::fmt::Display) {
    let _always_written = write!(script, "{value}");
}

fn write_optional<T: ?Sized>(script: &mut String, value: Option<&T>, write: impl Fn(&mut String, &T)) {
    match value {
        Some(value) => write(script, value),
        None => script.push_str("NULL"),
    }
}

/// Appends an element of an array, whose quotes and backslashes are escaped for the array, and its
/// apostrophes for the literal around it.
fn write_text(script: &mut String, text: &str) {
    script.push('"');
    for part in text.split_inclusive(['"', '\\', '\'']) {
        let (rest, escaped) = match part.chars().next_back() {
            Some('"') => (&part[..part.len() - 1], "\\\""),
            Some('\\') => (&part[..part.len() - 1], "\\\\"),
            Some('\'') => (&part[..part.len() - 1], "''"),
            _ => (part, ""),
        };
        script.push_str(rest);
        script.push_str(escaped);
    }
    script.push('"');
}

fn write_binary(script: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    script.push_str("\"\\\\x");
    for byte in bytes {
        script.push(char::from(DIGITS[usize::from(byte >> 4)]));
        script.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    script.push('"');
}

/// Runs a script, and returns the rows of each of its statements.
pub(super) async fn run_script(
    connection: &mut PgConnection,
    script: String,
) -> Result<Answers, RoundTripFailure> {
    let (mut answers, mut rows) = (Answers::new(), Vec::new());
    let mut parts = connection.fetch_many(raw_sql(AssertSqlSafe(script)));
    loop {
        match parts.try_next().await {
            Ok(Some(Either::Right(row))) => rows.push(row),
            Ok(Some(Either::Left(_end))) => answers.push(std::mem::take(&mut rows)),
            Ok(None) => return Ok(answers),
            Err(error) => {
                return Err(RoundTripFailure { error, succeeded: answers.len(), has_sent_all: true });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, Param, PreparedStatement, RoundTrip};

    const ECHO: PreparedStatement = PreparedStatement { name: "echo", sql: "SELECT $1::text[]" };

    fn script(text: &str) -> Option<String> {
        let mut round_trip = RoundTrip::default();
        round_trip.plain("BEGIN");
        round_trip.call(&ECHO, vec![Param::texts([text])]);
        round_trip.script()
    }

    #[test]
    fn literals_escape_quotes_for_the_array_and_for_the_literal() {
        let expected = r#"BEGIN;EXECUTE echo('{"a''b\"c\\d"}');"#;
        assert_eq!(script(r#"a'b"c\d"#).as_deref(), Some(expected));
    }

    #[test]
    fn large_values_nul_and_single_statements_are_bound() {
        assert!(script("a").is_some());
        assert!(script(&"a".repeat(MAX_BYTES)).is_none());
        assert!(script("a\0b").is_none());
        let mut round_trip = RoundTrip::default();
        round_trip.call(&ECHO, vec![Param::texts(["a"])]);
        assert!(round_trip.script().is_none());
    }
}
