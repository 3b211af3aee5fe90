//! The HTTP listener: the Open Job Spec, the dashboard, and metrics.

mod bad_input;
mod bounds;
mod browser;
pub(crate) mod client;
mod conformance;
mod dashboard;
mod events;
mod examples;
mod grafana;
mod jobs;
mod later;
mod nested;
mod openapi;
mod outputs;
mod resp_and_http;
mod workers;
