//! Versions of etcd, and what depends on them.

/// Returns whether a read is never stale in this version: from 3.5.28 and from 3.6.9 on. Before, it may be after a pause of
/// the etcd process (etcd-io/etcd#20418), so that a read must be confirmed by a write.
#[must_use]
pub fn has_stale_read_fix(version: &str) -> bool {
    has_fix(version, &[(3, 5, 28), (3, 6, 9)])
}

/// Returns whether the answer to a progress request comes after the events up to its revision (etcd-io/etcd#15220).
pub(super) fn has_progress_fix(version: &str) -> bool {
    has_fix(version, &[(3, 4, 25), (3, 5, 8)])
}

/// Returns whether the client supports this version: from 3.4 on, which can split large watch responses and answers progress
/// requests.
#[must_use]
pub fn is_supported(version: &str) -> bool {
    parse(version).is_some_and(|version| version >= (3, 4, 0))
}

/// Returns whether the version has what these patch versions of their minor versions, and all later minor versions, have.
fn has_fix(version: &str, fixed: &[(u64, u64, u64)]) -> bool {
    let Some(version) = parse(version) else { return false };
    let same_minor = fixed.iter().find(|fixed| (fixed.0, fixed.1) == (version.0, version.1));
    match same_minor {
        Some(fixed) => version >= *fixed,
        None => fixed.iter().all(|fixed| version > *fixed),
    }
}

/// Reads `3.5.28`, also with a suffix such as `-rc.0`.
fn parse(version: &str) -> Option<(u64, u64, u64)> {
    let release = version.split(['-', '+']).next()?;
    let mut parts = release.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_reads_are_possible_before_3_5_28_and_3_6_9() {
        for version in ["3.4.23", "3.4.99", "3.5.27", "3.6.0", "3.6.8", "2.3.0", "3.5", "", "not.a.version"] {
            assert!(!has_stale_read_fix(version), "{version}");
        }
        for version in ["3.5.28", "3.5.30", "3.6.9", "3.6.10-rc.0", "3.7.0", "4.0.0"] {
            assert!(has_stale_read_fix(version), "{version}");
        }
    }

    #[test]
    fn progress_is_in_order_from_3_4_25_and_3_5_8_on() {
        for (version, is_fixed) in
            [("3.4.23", false), ("3.4.25", true), ("3.5.7", false), ("3.5.8", true), ("3.6.0", true)]
        {
            assert_eq!(has_progress_fix(version), is_fixed, "{version}");
        }
    }

    #[test]
    fn versions_before_3_4_are_not_supported() {
        for (version, is_fine) in
            [("3.3.27", false), ("2.3.8", false), ("3.4.0", true), ("3.6.1", true), ("", false)]
        {
            assert_eq!(is_supported(version), is_fine, "{version}");
        }
    }
}
