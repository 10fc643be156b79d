//! Whether somebody's terminal speaks to this process.
//!
//! Source: `stat` of `proc(5)`.

/// Whether a terminal sends this process and those that it started what is typed there.
pub fn is_in_foreground() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything: state, parent, group, session, terminal, the terminal's group.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(2);
    let group = fields.next();
    let of_terminal = fields.nth(2);
    group.is_some() && group == of_terminal
}
