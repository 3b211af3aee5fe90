//! The results of the benchmark as JSON: figures, machine, and versions of the programs.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context;
use serde_json::{Value, json};

use super::{
    comparison::{Better, Bound},
    row::{GoalResult, Measurement, Origin, ResultRow},
};

/// Results of a run.
#[derive(Debug, Clone)]
pub(crate) struct ResultsDocument {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) machine: Value,
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) is_quick: bool,
    pub(crate) rows: Vec<ResultRow>,
}

/// Amount of detail in the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The figure of each round
    Rounds,
    /// Least, median and greatest figure only
    Figures,
}

impl ResultsDocument {
    pub(crate) fn to_json(&self, detail: Detail) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(|row| row_to_json(row, detail)).collect();
        json!({
            "date": self.date,
            "commit": self.commit,
            "machine": self.machine,
            "versions": self.versions,
            "quick": self.is_quick,
            "rows": rows,
        })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let versions = value["versions"].as_object()?.iter();
        let versions = versions.map(|(name, version)| Some((name.clone(), version.as_str()?.to_owned())));
        Some(Self {
            date: text(value, "date")?,
            commit: text(value, "commit")?,
            machine: value["machine"].clone(),
            versions: versions.collect::<Option<_>>()?,
            is_quick: value["quick"].as_bool()?,
            rows: value["rows"].as_array()?.iter().map(row_from_json).collect::<Option<_>>()?,
        })
    }

    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let value: Value =
            serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))?;
        Self::from_json(&value).with_context(|| format!("{} is not what `bench` writes", file.display()))
    }

    pub(crate) fn write(&self, file: &Path, detail: Detail) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.to_json(detail))?;
        fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
    }
}

fn row_to_json(row: &ResultRow, detail: Detail) -> Value {
    let measurements: Vec<Value> =
        row.measurements.iter().map(|measurement| side_to_json(row, measurement, detail)).collect();
    let goals = row.goals.iter().map(|goal| {
        json!({
            "peer": goal.peer,
            "ratio": goal.ratio,
            "floor": goal.floor,
            "aim": goal.aim,
            "verdict": goal.verdict().word(),
        })
    });
    let bound = row.bound.zip(row.bound_verdict());
    let bound = bound
        .map(|(bound, verdict)| json!({"floor": bound.floor, "aim": bound.aim, "verdict": verdict.word()}));
    json!({
        "section": row.section,
        "title": row.title,
        "unit": row.unit,
        "better": match row.better { Better::More => "more", Better::Less => "less" },
        "note": row.note,
        "contenders": measurements,
        "goals": goals.collect::<Vec<_>>(),
        "bound": bound,
        "date": row.origin.date,
        "commit": row.origin.commit,
        "kernel": row.origin.kernel,
        "quick": row.origin.is_quick,
    })
}

fn side_to_json(row: &ResultRow, measurement: &Measurement, detail: Detail) -> Value {
    let mut value = json!({
        "name": measurement.name,
        "min": measurement.min,
        "median": measurement.median,
        "max": measurement.max,
        "ratio": row.ratio_to(measurement),
    });
    if detail == Detail::Rounds {
        value["samples"] = json!(measurement.samples);
    }
    value
}

fn row_from_json(value: &Value) -> Option<ResultRow> {
    let measurements: Vec<Measurement> =
        value["contenders"].as_array()?.iter().map(side_from_json).collect::<Option<_>>()?;
    let bound = &value["bound"];
    let bound = if bound.is_null() {
        None
    } else {
        Some(Bound { floor: bound["floor"].as_f64()?, aim: bound["aim"].as_f64()? })
    };
    if measurements.is_empty() {
        return None;
    }
    Some(ResultRow {
        section: text(value, "section")?,
        title: text(value, "title")?,
        unit: text(value, "unit")?,
        better: if value["better"].as_str()? == "more" { Better::More } else { Better::Less },
        note: text(value, "note")?,
        measurements,
        goals: value["goals"].as_array()?.iter().map(goal_from_json).collect::<Option<_>>()?,
        bound,
        origin: Origin {
            date: text(value, "date")?,
            commit: text(value, "commit")?,
            kernel: text(value, "kernel")?,
            is_quick: value["quick"].as_bool()?,
        },
    })
}

fn side_from_json(value: &Value) -> Option<Measurement> {
    let samples = value["samples"].as_array().map(Vec::as_slice).unwrap_or_default();
    Some(Measurement {
        name: text(value, "name")?,
        min: value["min"].as_f64()?,
        median: value["median"].as_f64()?,
        max: value["max"].as_f64()?,
        samples: samples.iter().map(Value::as_f64).collect::<Option<_>>()?,
    })
}

fn goal_from_json(value: &Value) -> Option<GoalResult> {
    Some(GoalResult {
        peer: text(value, "peer")?,
        ratio: value["ratio"].as_f64()?,
        floor: value["floor"].as_f64(),
        aim: value["aim"].as_f64(),
    })
}

fn text(value: &Value, name: &str) -> Option<String> {
    Some(value[name].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::{Detail, ResultsDocument};
    use crate::{comparison::Better, row};

    #[test]
    fn document_is_the_same_after_a_round_trip_through_json() {
        let document = ResultsDocument {
            date: "2026-01-01".into(),
            commit: "abc1234".into(),
            machine: json!({"cpus": 2}),
            versions: BTreeMap::from([("redis-server".into(), "7.0.15".into())]),
            is_quick: false,
            rows: vec![row::tests::row(Better::Less, 90.0)],
        };
        let read = ResultsDocument::from_json(&document.to_json(Detail::Rounds)).unwrap();
        assert_eq!(read.rows, document.rows);
        assert_eq!((read.machine, read.versions), (document.machine.clone(), document.versions.clone()));
        let read = ResultsDocument::from_json(&document.to_json(Detail::Figures)).unwrap();
        assert_eq!(read.rows[0].measurements[1].samples, [0.0; 0]);
        assert!((read.rows[0].goals[0].ratio - document.rows[0].goals[0].ratio).abs() < 1e-9);
    }
}
