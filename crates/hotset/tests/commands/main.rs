//! The command, its daemon and its page, by the clients that people have.

mod absence;
mod advice;
mod array_input;
mod arrays;
mod bad_input;
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod connection_limits;
mod descriptors;
mod documents;
mod drill;
mod ext4;
mod installed;
mod jobs;
mod lasting;
mod limits;
mod losses;
mod manual;
mod operations;
mod page;
mod pools;
mod reload;
mod reservations;
mod restart;
mod snapshot;
mod support;
mod top;
mod trace;
mod troubles;
mod walk;
mod watching;
mod web;
mod web_abuse;
mod write_back;
mod write_back_advice;
