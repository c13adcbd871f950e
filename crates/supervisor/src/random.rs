//! The chance that names and waits need.

use crate::error::StartError;

/// 64 bits from the operating system.
pub(crate) fn bits() -> Result<u64, StartError> {
    getrandom::u64().map_err(|source| StartError::Random(source.into()))
}

/// 128 bits from the operating system, as hexadecimal digits.
pub(crate) fn name() -> Result<String, StartError> {
    Ok(format!("{:016x}{:016x}", bits()?, bits()?))
}

/// A small generator for jitter (`SplitMix64`): reproducible from its seed, so that the machine
/// that holds it stays pure.
#[derive(Debug, Clone)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 up to, not including, 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The upper 32 bits fit a float exactly.
        let upper = u32::try_from((bits ^ (bits >> 31)) >> 32).unwrap_or(0);
        f64::from(upper) / (f64::from(u32::MAX) + 1.0)
    }
}
