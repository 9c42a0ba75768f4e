//! Holds the version of the official SDK that judges the store: see `.ci/sdk`.
