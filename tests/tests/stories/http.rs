//! The other door: the Open Job Spec over HTTP.

mod bad_input;
mod bounds;
mod browser;
mod client;
mod conformance;
mod dashboard;
mod events;
mod examples;
mod grafana;
mod jobs;
mod later;
mod nested;
mod openapi;
mod two_doors;
mod workers;
