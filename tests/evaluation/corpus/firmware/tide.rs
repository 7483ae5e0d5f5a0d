//! Prediction of the tide from harmonic constituents.

/// One constituent: its speed in degrees an hour, amplitude in metres and phase in degrees.
pub struct Constituent {
    pub speed: f64,
    pub amplitude: f64,
    pub phase: f64,
}

/// The height of the water above chart datum, `hours` after the epoch.
pub fn height_at(constituents: &[Constituent], mean_level: f64, hours: f64) -> f64 {
    mean_level
        + constituents
            .iter()
            .map(|c| c.amplitude * (c.speed * hours - c.phase).to_radians().cos())
            .sum::<f64>()
}

/// Searches the next high water by golden section between two slack times.
pub fn next_high_water(constituents: &[Constituent], from_hours: f64) -> f64 {
    let ratio = 0.618_033_988_75;
    let (mut low, mut high) = (from_hours, from_hours + 12.42);
    while high - low > 1.0 / 60.0 {
        let (a, b) = (high - ratio * (high - low), low + ratio * (high - low));
        if height_at(constituents, 0.0, a) > height_at(constituents, 0.0, b) { high = b } else { low = a }
    }
    (low + high) / 2.0
}
