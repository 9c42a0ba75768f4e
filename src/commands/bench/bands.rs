//! Distribution of latencies over a few bands with round limits (pure).

use std::time::Duration;

use super::report::Band;

/// The most bands of a distribution.
const BANDS_MAX: usize = 16;

/// Limits within a decade, in hundredths of its beginning, from fine to coarse.
const STEPS: [&[u64]; 4] = [
    &[100, 125, 160, 200, 250, 315, 400, 500, 630, 800],
    &[100, 160, 250, 400, 630],
    &[100, 200, 500],
    &[100],
];

/// Returns the bands of latencies, which are in ascending order, each with its number. Empty bands are included.
#[must_use]
pub fn bands(recorded: &[(Duration, u64)]) -> Vec<Band> {
    let (Some((min, _)), Some((max, _))) = (recorded.first(), recorded.last()) else { return Vec::new() };
    let fine_enough =
        STEPS.iter().map(|steps| limits(steps, *min, *max)).find(|limits| limits.len() <= BANDS_MAX);
    let limits = fine_enough.unwrap_or_else(|| vec![*max]);
    let mut bands: Vec<_> = limits.into_iter().map(|to| Band { to, count: 0 }).collect();
    for (latency, count) in recorded {
        if let Some(band) = bands.iter_mut().find(|band| *latency <= band.to) {
            band.count = band.count.saturating_add(*count);
        }
    }
    bands
}

/// Returns the limits from the first that is not below `min` to the first that is not below `max`.
fn limits(steps: &[u64], min: Duration, max: Duration) -> Vec<Duration> {
    let decades = std::iter::successors(Some(1_u64), |decade| decade.checked_mul(10));
    let all = decades.flat_map(|decade| steps.iter().filter_map(move |step| decade.checked_mul(*step)));
    let limits = all.map(Duration::from_nanos).skip_while(|limit| *limit < min);
    let mut is_last = false;
    limits
        .take_while(|limit| {
            let is_taken = !is_last;
            is_last = *limit >= max;
            is_taken
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(us: &[u64]) -> Vec<(u128, u64)> {
        let recorded: Vec<_> = us.iter().map(|us| (Duration::from_micros(*us), 1)).collect();
        bands(&recorded).iter().map(|band| (band.to.as_nanos() / 1000, band.count)).collect()
    }

    #[test]
    fn near_latencies_have_narrow_bands_and_distant_ones_wide_bands() {
        assert_eq!(of(&[110, 120, 130, 190]), [(125, 2), (160, 1), (200, 1)]);
        assert_eq!(of(&[100]), [(100, 1)]);
        let wide = of(&[9, 50, 51, 900_000]);
        assert_eq!(wide.first(), Some(&(10, 1)));
        assert_eq!(wide.last(), Some(&(1_000_000, 1)));
        assert!(wide.contains(&(50, 1)) && wide.contains(&(100, 1)) && wide.contains(&(200, 0)), "{wide:?}");
    }

    #[test]
    fn each_latency_is_in_one_band_and_there_are_few_bands() {
        for (min, max) in [(0, 0), (0, 1), (1, 3_600_000_000), (99, 101), (5, 7_000), (1, 999)] {
            let bands = of(&[min, max]);
            assert!(bands.len() <= BANDS_MAX, "{min} {max}: {bands:?}");
            assert_eq!(bands.iter().map(|(_, count)| count).sum::<u64>(), 2, "{min} {max}: {bands:?}");
        }
    }

    #[test]
    fn no_latencies_have_no_bands() {
        assert_eq!(bands(&[]), []);
    }
}
