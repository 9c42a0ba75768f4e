//! Notifications of a service manager, which this system does not have.

pub fn ready(_status: &str) {}

pub fn reloading() {}

pub fn reloaded() {}

pub fn stopping() {}
