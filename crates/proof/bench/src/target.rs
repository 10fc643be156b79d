//! What must be reached, and whether it was.

use serde_json::{Value, json};

/// One demand with the figure that answers it.
#[derive(Clone, Debug)]
pub struct Target {
    /// What must be.
    pub demand: String,
    /// Where it was measured.
    pub place: String,
    /// What is.
    pub figure: f64,
    /// The bound.
    pub bound: f64,
    /// Whether the bound is a lower one.
    pub at_least: bool,
}

impl Target {
    /// Whether the figure keeps the bound; one that is not a number does not.
    pub fn met(&self) -> bool {
        if self.at_least { self.figure >= self.bound } else { self.figure <= self.bound }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "demand": self.demand, "place": self.place, "figure": self.figure,
            "bound": self.bound, "atLeast": self.at_least, "met": self.met(),
        })
    }
}

/// A line a target.
pub fn text(targets: &[Target]) -> String {
    let mut text = format!("{:52} {:66} {:>10} {:>10}\n", "must reach", "where", "is", "must be");
    for target in targets {
        let sign = if target.at_least { ">=" } else { "<=" };
        text += &format!(
            "{:52} {:66} {:>10.2} {:>10}  {}\n",
            target.demand,
            target.place,
            target.figure,
            format!("{sign} {}", (1000.0 * target.bound).round() / 1000.0),
            if target.met() { "met" } else { "NOT MET" }
        );
    }
    text
}

/// All targets for programs.
pub fn json(targets: &[Target]) -> Value {
    targets.iter().map(Target::json).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_missing_meets_nothing() {
        let mut target =
            Target { demand: String::new(), place: String::new(), figure: 1.0, bound: 1.0, at_least: true };
        assert!(target.met());
        target.at_least = false;
        assert!(target.met());
        target.figure = f64::NAN;
        assert!(!target.met());
    }
}
