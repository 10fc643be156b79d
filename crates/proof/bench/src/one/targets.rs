//! What Baton must reach beside its peers, and whether it did.
//!
//! Every target is a ratio of two figures of one run. A target whose figures are missing is left out, not met.

use super::peers::{APPEND, BATON, BATON_DURABLE, ECHO, JAVA, REDIS, REDIS_DURABLE, ROCKSDB_DURABLE};
use super::{Cell, Cells, Place, Section, median};
use crate::target::Target;
use crate::workload::Workload;

/// Compares what was measured with what must be reached.
pub fn judge(cells: &Cells) -> Vec<Target> {
    let mut targets = Vec::new();
    for (place, peers) in cells {
        let cell = |name: &str| peers.iter().find(|(known, _)| *known == name).and_then(|(_, rounds)| median(rounds));
        match place.section {
            Section::Ycsb => ycsb(place, cell, &mut targets),
            Section::Durable => durable(place, cell, &mut targets),
        }
    }
    targets
}

fn rate(cell: &Cell) -> f64 {
    cell.outcome.throughput()
}

fn quantile(cell: &Cell, quantile: f64) -> f64 {
    cell.outcome.latencies.quantile_us(quantile).unwrap_or(f64::NAN)
}

/// The machine's own figure of the same place, so that two runs can be told apart: a ratio that changes with it is the machine's doing.
fn beside(place: &Place, machine: Option<String>) -> String {
    machine.map_or(place.text(), |machine| format!("{} ({machine})", place.text()))
}

fn ycsb<'a>(place: &Place, cell: impl Fn(&str) -> Option<&'a Cell>, targets: &mut Vec<Target>) {
    let Some(baton) = cell(BATON) else { return };
    let where_ = beside(place, cell(ECHO).map(|echo| format!("ping-pong {:.0}/s", rate(echo))));
    let mut add = |demand: String, figure: f64, bound: f64, at_least: bool| {
        targets.push(Target { demand, place: where_.clone(), figure, bound, at_least });
    };
    if let Some(java) = cell(JAVA) {
        let times = if place.workload == Workload::E { 5.0 } else { 10.0 };
        add(format!("throughput, of {JAVA}'s"), rate(baton) / rate(java), times, true);
        // Who answers nothing has no percentile to beat.
        if !java.outcome.is_silence() {
            add(format!("p99, of {JAVA}'s"), quantile(baton, 0.99) / quantile(java, 0.99), 1.0, false);
        }
    }
    if let Some(redis) = cell(REDIS) {
        let throughput = rate(baton) / rate(redis);
        match place.workload {
            Workload::C => add("throughput, of Redis GET's".into(), throughput, 1.0, true),
            Workload::A | Workload::F => {
                add("throughput, of Redis GET's and SET's".into(), throughput, 0.65, true);
                add("p99, of theirs".into(), quantile(baton, 0.99) / quantile(redis, 0.99), 3.0, false);
            }
            _ => {}
        }
    }
    if place.workload == Workload::C
        && let Some(echo) = cell(ECHO)
    {
        add("throughput, of the ping-pong's".into(), rate(baton) / rate(echo), 0.75, true);
    }
}

fn durable<'a>(place: &Place, cell: impl Fn(&str) -> Option<&'a Cell>, targets: &mut Vec<Target>) {
    let Some(baton) = cell(BATON_DURABLE) else { return };
    let machine = cell(APPEND).map(|append| format!("append and sync {:.0} us", quantile(append, 0.5)));
    let where_ = beside(place, machine);
    let mut add = |demand: &str, figure: f64, bound: f64, at_least: bool| {
        targets.push(Target { demand: demand.into(), place: where_.clone(), figure, bound, at_least });
    };
    if place.clients == 1 {
        if let Some(append) = cell(APPEND) {
            let ratio = quantile(baton, 0.5) / quantile(append, 0.5);
            add("median latency, of one append and fdatasync", ratio, 1.6, false);
        }
        return;
    }
    let is_many = place.clients >= 64;
    if let Some(redis) = cell(REDIS_DURABLE) {
        let bound = if is_many { 1.0 } else { 0.9 };
        add("throughput, of Redis SET's, appendfsync always", rate(baton) / rate(redis), bound, true);
    }
    if let Some(rocksdb) = cell(ROCKSDB_DURABLE) {
        add("throughput, of RocksDB's through one queue", rate(baton) / rate(rocksdb), 0.6, true);
    }
    if is_many && let Some(us) = baton.server_cpu_us {
        add("server's CPU for an update, microseconds", us, 40.0, false);
    }
    add("switches of context of the machine for an update", baton.switches(), if is_many { 2.3 } else { 3.0 }, false);
    if let Some(groups) = baton.groups {
        add("transactions a batch", groups.batch, if is_many { 24.0 } else { 4.0 }, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::machine::Use;
    use crate::runner::Outcome;
    use crate::workload::Kind;
    use std::time::Duration;

    fn cell(outcome: Outcome) -> Cell {
        let quiet = Use::default();
        Cell { outcome, server_cpu_us: None, groups: None, before: quiet, during: quiet, load_average: 0.0 }
    }

    #[test]
    fn a_peer_that_answers_nothing_is_beaten_in_throughput_and_has_no_percentile() {
        let mut busy =
            Outcome { latencies: Latencies::new().unwrap(), ..Outcome::silence(Duration::from_secs(1)).unwrap() };
        busy.latencies.record(Kind::Scan, 1_000_000);
        let silence = Outcome::silence(Duration::from_secs(60)).unwrap();
        let place = Place { section: Section::Ycsb, workload: Workload::E, clients: 64 };
        let peers = vec![(BATON, vec![cell(busy)]), (JAVA, vec![cell(silence)])];
        let targets = judge(&Cells::from([(place, peers)]));
        let [throughput] = &targets[..] else { panic!("{} targets", targets.len()) };
        assert!(throughput.figure.is_infinite() && throughput.met());
    }
}
