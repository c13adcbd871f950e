//! Medians, quartiles and percentiles of small samples.

use serde::Serialize;

/// The middle of a sample and how far it spreads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Quartiles {
    /// A quarter of the sample is below this.
    pub(crate) lower: f64,
    pub(crate) median: f64,
    /// A quarter of the sample is above this.
    pub(crate) upper: f64,
}

impl Quartiles {
    /// Of the values in any order; `None` when there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            lower: quantile(&sorted, 1, 4)?,
            median: quantile(&sorted, 1, 2)?,
            upper: quantile(&sorted, 3, 4)?,
        })
    }
}

/// The quantile `part / whole` of a sorted sample, on the straight line between its two neighbours
/// (type 7 of Hyndman and Fan 1996, the default of R and `NumPy`); `None` for an empty sample.
pub(crate) fn quantile(sorted: &[f64], part: usize, whole: usize) -> Option<f64> {
    let steps = sorted.len().checked_sub(1)? * part;
    let (below, rest) = (steps / whole, steps % whole);
    let low = *sorted.get(below)?;
    let high = sorted.get(below + 1).copied().unwrap_or(low);
    Some(low + (high - low) * exact(rest) / exact(whole))
}

/// A small count as a float; the counts here are far below 2^32.
fn exact(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn the_median_of_an_odd_sample_is_its_middle_value_in_any_order() {
        let quartiles = Quartiles::of([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_near(quartiles.lower, 2.0);
        assert_near(quartiles.median, 3.0);
        assert_near(quartiles.upper, 4.0);
    }

    #[test]
    fn quartiles_of_an_even_sample_lie_between_its_values() {
        let quartiles = Quartiles::of([1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_near(quartiles.lower, 1.75);
        assert_near(quartiles.median, 2.5);
        assert_near(quartiles.upper, 3.25);
    }

    #[test]
    fn one_value_is_its_own_quartiles_and_no_value_has_none() {
        let quartiles = Quartiles::of([7.0]).unwrap();
        assert_near(quartiles.lower, 7.0);
        assert_near(quartiles.upper, 7.0);
        assert!(Quartiles::of([]).is_none());
    }

    #[test]
    fn the_last_percentile_of_a_hundred_and_one_values_is_the_last_but_one() {
        let sorted: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_near(quantile(&sorted, 99, 100).unwrap(), 99.0);
        assert_near(quantile(&sorted, 100, 100).unwrap(), 100.0);
    }
}
