//! The proleptic Gregorian calendar and ISO weeks, in whole numbers.
//!
//! Days are counted from 1970-01-01. Every function is total over the days that 64 bits of milliseconds can reach.

/// Milliseconds of a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// A moment taken apart, without zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    pub year: i64,
    /// From 1.
    pub month: i64,
    /// From 1.
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    pub millisecond: i64,
    /// Days since 1970-01-01.
    pub days: i64,
}

/// The days from 1970-01-01 to a date; the month from 1 to 12, the day any number.
pub(crate) fn days_from_date(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March have the leap day at their end.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 719468 days lie between 0000-03-01 and 1970-01-01.
    era * ERA_DAYS + day_of_era - 719_468
}

/// Year, month and day of a count of days.
pub(crate) fn date_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(ERA_DAYS);
    let day_of_era = shifted.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

impl Civil {
    /// Takes milliseconds since 1970 apart.
    pub fn from_ms(ms: i64) -> Self {
        let days = ms.div_euclid(DAY_MS);
        let within = ms.rem_euclid(DAY_MS);
        let (year, month, day) = date_from_days(days);
        Self {
            year,
            month,
            day,
            hour: within / 3_600_000,
            minute: within / 60_000 % 60,
            second: within / 1000 % 60,
            millisecond: within % 1000,
            days,
        }
    }

    /// From 1.
    pub fn day_of_year(&self) -> i64 {
        self.days - days_from_date(self.year, 1, 1) + 1
    }

    /// Sunday is 1, Saturday 7.
    pub fn day_of_week(&self) -> i64 {
        // 1970-01-01 was a Thursday.
        (self.days + 4).rem_euclid(7) + 1
    }

    /// Monday is 1, Sunday 7.
    pub fn iso_day_of_week(&self) -> i64 {
        (self.days + 3).rem_euclid(7) + 1
    }

    /// The week of the year, from 0, weeks beginning on Sunday and week 1 with the first Sunday.
    pub fn week(&self) -> i64 {
        (self.day_of_year() - self.day_of_week() + 7) / 7
    }

    /// ISO 8601: the year that the week's Thursday lies in, and the week's number in it, from 1.
    pub fn iso_week(&self) -> (i64, i64) {
        let thursday = self.days + 4 - self.iso_day_of_week();
        let (year, _, _) = date_from_days(thursday);
        (year, (thursday - days_from_date(year, 1, 1)) / 7 + 1)
    }
}

/// The Monday of week 1 of an ISO year, in days.
pub(crate) fn iso_year_start(year: i64) -> i64 {
    // The 4th of January lies in week 1.
    let fourth = days_from_date(year, 1, 4);
    fourth - (fourth + 3).rem_euclid(7)
}

/// How many days a month has.
pub(crate) fn month_days(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_from_date(next_year, next_month, 1) - days_from_date(year, month, 1)
}

/// `2018-07-04T12:00:00.000Z`.
pub(crate) fn iso_text(ms: i64) -> String {
    let civil = Civil::from_ms(ms);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second, civil.millisecond
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_inverse_across_leap_years_and_centuries() {
        for days in (-1_000_000..1_000_000).step_by(37) {
            let (year, month, day) = date_from_days(days);
            assert_eq!(days_from_date(year, month, day), days);
            assert!((1..=month_days(year, month)).contains(&day));
        }
        assert_eq!(date_from_days(0), (1970, 1, 1));
        assert_eq!(days_from_date(2000, 2, 29), 11_016);
        assert_eq!(days_from_date(1600, 3, 1) - days_from_date(1600, 2, 28), 2);
    }

    #[test]
    fn iso_weeks_belong_to_the_year_of_their_thursday() {
        let week = |year, month, day| Civil::from_ms(days_from_date(year, month, day) * DAY_MS).iso_week();
        assert_eq!(week(2016, 1, 1), (2015, 53));
        assert_eq!(week(2017, 1, 1), (2016, 52));
        assert_eq!(week(2018, 12, 31), (2019, 1));
        assert_eq!(week(2020, 12, 31), (2020, 53));
        assert_eq!(iso_year_start(2019), days_from_date(2018, 12, 31));
    }

    #[test]
    fn the_ends_of_the_range_have_parts() {
        for ms in [i64::MIN, i64::MAX] {
            let civil = Civil::from_ms(ms);
            assert!(civil.day_of_year() >= 1 && civil.week() >= 0 && civil.iso_week().1 >= 1);
        }
    }
}
