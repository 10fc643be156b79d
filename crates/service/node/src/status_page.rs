//! The status page: what an operator asks first, on one page without scripts.
//!
//! Invariant: whatever a client calls itself or its collections is shown as text, never as markup.
//! What it deliberately does not do: history beyond the last hour (`timeline`). `/metrics` is for those who keep it.

use crate::latencies::Latencies;
use crate::timeline::{self, Timeline};
use baton_commands::Server;
use baton_net::CountersSnapshot;
use baton_request::Kind;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;\
color:#222;background:#fff}h1{font-size:1.4rem}h2{font-size:1.05rem;margin-top:2rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .8rem .2rem 0;\
border-bottom:1px solid #ddd;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}\
code{background:#f3f3f3;padding:.1rem .3rem}\
.timeline{width:100%}.timeline text{font-size:11px;fill:currentColor}.tick{stroke:#8886;stroke-width:.5}\
.primary{fill:#2a9d5c}.nobody{fill:#d33;opacity:.4}.handoff line{stroke:#d33;stroke-width:1.5;stroke-dasharray:3 2}\
.task{fill:#888}.backup{fill:#3a6ed0}.compaction{fill:#d08a2a}.indexBuild{fill:#9a4fd0}.initialSyncSource{fill:#d04f9a}\
.waiting{opacity:.45}.half,.most{fill:none;stroke:currentColor;stroke-width:2.5}.most{stroke-width:1}circle{fill:currentColor}\
.of-high{color:#2a9d5c}.of-normal{color:#3a6ed0}.of-low{color:#888}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}td,th{border-color:#333}code{background:#262626}}";

/// The page.
pub fn render(server: &Server, network: &CountersSnapshot, timeline: &Timeline, latencies: &Latencies) -> String {
    let mut page = String::with_capacity(8 * 1024);
    let host = escape(&server.identity.host);
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><meta http-equiv=\"refresh\" content=\"5\"><title>Baton {host}</title>\
         <style>{STYLE}</style><h1>Baton on {host}</h1>"
    );
    append_member(server, network, &mut page);
    append_timeline(server, timeline, &mut page);
    append_latencies(server, latencies, &mut page);
    append_operations(server, &mut page);
    append_tasks(server, &mut page);
    append_storage(server, &mut page);
    page.push_str("<p><a href=\"/metrics\">metrics</a> · <a href=\"/healthz\">health</a></p></html>\n");
    page
}

fn row(page: &mut String, name: &str, value: &str) {
    let _ = write!(page, "<tr><th>{name}</th><td>{value}</td></tr>");
}

fn append_member(server: &Server, network: &CountersSnapshot, page: &mut String) {
    page.push_str("<table>");
    match server.topology.set() {
        Some(set) => {
            let members = set.configuration().map_or(0, |configuration| configuration.members.len());
            row(
                page,
                "Role",
                &format!("{} of <code>{}</code>, {members} members", set.view.state.name(), escape(&set.name)),
            );
            let uri = format!("mongodb://{}/?replicaSet={}", set.me, set.name);
            row(page, "Connect", &format!("<code>{}</code>", escape(&uri)));
        }
        None => row(page, "Role", "standalone"),
    }
    row(page, "Up for", &duration(server.started.elapsed().as_secs()));
    row(page, "Applied", &server.storage.queue().applied().to_string());
    row(page, "On disk", &server.storage.queue().durable().to_string());
    row(page, "Connections", &format!("{} open, {} active", network.current, network.active));
    let counts = [Kind::Insert, Kind::Query, Kind::Update, Kind::Delete, Kind::GetMore, Kind::Command]
        .map(|kind| format!("{} {}", server.counters.operations(kind), kind.name()));
    row(page, "Since the start", &counts.join(" · "));
    row(page, "Data", &escape(&server.identity.data_directory));
    page.push_str("</table>");
}

/// A standalone has nobody to hand leadership to.
fn append_timeline(server: &Server, timeline: &Timeline, page: &mut String) {
    let Some(set) = server.topology.set() else { return };
    let members: Vec<String> = set
        .configuration()
        .map(|configuration| configuration.members.iter().map(|member| member.host.clone()).collect())
        .unwrap_or_default();
    page.push_str("<h2>Who led and what ran within the last hour, as this member has seen it</h2>");
    page.push_str(&timeline::draw(&timeline.seen(), &timeline::moves(server), &members, server.started.elapsed()));
    page.push_str(
        "<p>Green: primary. Below it tasks, paler while they wait. Red: no primary was known here. Dashed: this member handed \
         leadership over, and for how long nobody took writes then.</p>",
    );
}

/// Where nobody says of which class a request is there is nothing to compare.
fn append_latencies(server: &Server, latencies: &Latencies, page: &mut String) {
    let Some(picture) = latencies.draw(server.started.elapsed()) else { return };
    page.push_str("<h2>How long requests of each class took within the last ten minutes</h2>");
    page.push_str(&picture);
    page.push_str(
        "<p>Green: high, blue: normal, grey: low. Thick: half of them took no longer; thin: 99 of 100. Without the time that they waited at \
         the door.</p>",
    );
}

fn append_operations(server: &Server, page: &mut String) {
    page.push_str("<h2>Running operations</h2><table><tr><th>opid</th><th>ms</th><th>class</th><th>what</th><th>namespace</th><th>client</th></tr>");
    let mut running = server.operations.running();
    running.sort_by_key(|(_, state)| state.started);
    // A page is for eyes; `currentOp` has the rest.
    const SHOWN_MAX: usize = 50;
    for (slot, state) in running.iter().take(SHOWN_MAX) {
        let _ = write!(
            page,
            "<tr><td class=n>{}</td><td class=n>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            state.id,
            state.started.elapsed().as_millis(),
            state.class,
            escape(state.name),
            escape(&state.namespace()),
            escape(&slot.description),
        );
    }
    page.push_str("</table>");
    if running.len() > SHOWN_MAX {
        let _ = write!(page, "<p>and {} more</p>", running.len() - SHOWN_MAX);
    }
}

fn append_tasks(server: &Server, page: &mut String) {
    page.push_str("<h2>Background tasks</h2><table><tr><th>kind</th><th>of</th><th>seconds</th><th>progress</th></tr>");
    let tasks = server.storage.tasks();
    for task in tasks.running().into_iter().chain(tasks.waiting()) {
        let progress = task.progress();
        let (done, total) = progress.counts();
        let left = progress.eta_secs().map(|secs| format!(", {secs:.0} s left")).unwrap_or_default();
        let percent = (done * 100).checked_div(total).map(|percent| format!("{percent} %{left}"));
        let progress = task.waits_for.map(|why| format!("waits: {}", escape(why))).or(percent).unwrap_or_default();
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=n>{}</td><td class=n>{progress}</td></tr>",
            task.kind.name(),
            escape(&task.name),
            task.started.elapsed().as_secs(),
        );
    }
    page.push_str("</table>");
}

fn append_storage(server: &Server, page: &mut String) {
    let s = server.storage.statistics();
    page.push_str("<h2>Storage</h2><table>");
    row(page, "Files", &mebibytes(s.sst_bytes));
    row(page, "Cache", &format!("{} of {}", mebibytes(s.cache_bytes), mebibytes(s.cache_bytes_max)));
    row(page, "Oplog", &format!("{} of {}", mebibytes(s.oplog_bytes), mebibytes(s.oplog_bytes_max)));
    row(page, "Dropped, not yet given back", &mebibytes(s.dropped_bytes));
    row(page, "Compaction to do", &mebibytes(s.pending_compaction_bytes));
    row(page, "Writes", if s.write_stopped { "<b>stopped by compaction debt</b>" } else { "flowing" });
    page.push_str("</table>");
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1024.0 / 1024.0)
}

fn duration(secs: u64) -> String {
    let (days, hours, minutes) = (secs / 86_400, secs / 3600 % 24, secs / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {} s", secs % 60),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_text() {
        assert_eq!(escape("<script>&'\""), "&lt;script&gt;&amp;&#39;&quot;");
    }

    #[test]
    fn durations_are_said_in_two_units() {
        assert_eq!(duration(61), "1 min 1 s");
        assert_eq!(duration(7_260), "2 h 1 min");
        assert_eq!(duration(90_000), "1 d 1 h");
    }
}
