//! The other door: the Open Job Spec over HTTP.

mod bad_input;
mod client;
mod conformance;
mod examples;
mod jobs;
mod later;
mod openapi;
mod two_doors;
mod workers;
