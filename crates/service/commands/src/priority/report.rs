//! What the door has seen, by class, for `serverStatus.priority` and for `/metrics`; and there how often each rule has matched.

use super::figures::{BUCKETS_MICROS, Figures, Histogram, OfClass};
use super::helping::starved;
use super::{Policy, Priority};
use baton_admission::Counts;
use baton_types::Class;
use baton_wire::DocumentWriter;
use bson::cstr;
use bson::raw::{CStr, CString};
use std::fmt::Write;

/// Appends the section `priority`.
pub(crate) fn append_status(priority: &Priority, w: &mut DocumentWriter<'_>) {
    let policy = priority.policy();
    let (counts, figures) = priority.door.look();
    w.begin_document(cstr!("priority"));
    w.append(cstr!("mode"), policy.settings.mode.name());
    w.append(cstr!("niceness"), priority.right.name());
    w.append(cstr!("inheritances"), baton_machine::inheritances() as i64);
    w.append(cstr!("starved"), starved() as i64);
    w.append(cstr!("workConserving"), policy.settings.conserves_work());
    w.append(cstr!("worstWaitMs"), policy.settings.worst_wait.as_millis() as i64);
    w.append(cstr!("limit"), counts.limit as i64);
    w.begin_document(cstr!("classes"));
    for class in Figures::CLASSES {
        w.begin_document(name_of(class));
        append_class(w, &counts, class, figures.of(class));
        w.end();
    }
    w.end();
    append_rules(w, &policy);
    w.end();
}

/// Appends what Prometheus is told of classes, in its text form.
pub(crate) fn append_metrics(priority: &Priority, text: &mut String) {
    let (counts, figures) = priority.door.look();
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&OfClass, usize) -> String| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for class in Figures::CLASSES {
            let index = class.rank();
            let _ = writeln!(text, "{name}{{class=\"{class}\"}} {}", value(figures.of(class), index));
        }
    };
    family("baton_door_waiting", "gauge", "Requests that wait for their turn.", &|_, i| counts.waiting[i].to_string());
    family("baton_door_computing", "gauge", "Requests let in that compute.", &|_, i| counts.computing[i].to_string());
    family("baton_door_waited_total", "counter", "Requests that had to wait for their turn.", &|of, _| {
        of.waited.to_string()
    });
    family("baton_door_aged_total", "counter", "Requests that began because their wait was at its end.", &|of, _| {
        of.aged.to_string()
    });
    family("baton_door_refused_total", "counter", "Requests refused before they began.", &|of, _| {
        (of.refused_late + of.refused_overload).to_string()
    });
    family("baton_door_worst_wait_seconds", "gauge", "The longest wait since the start.", &|of, _| {
        of.worst_wait.as_secs_f64().to_string()
    });
    for (name, help, histogram) in [
        (
            "baton_door_wait_seconds",
            "Waits of requests that the door has counted.",
            (|of| &of.waits) as fn(&OfClass) -> &Histogram,
        ),
        ("baton_service_seconds", "From the beginning of a request to its reply, where classes differ.", |of| {
            &of.services
        }),
    ] {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        for class in Figures::CLASSES {
            append_buckets(text, name, class, histogram(figures.of(class)));
        }
    }
    for (name, help, count) in [
        (
            "baton_niceness_inherited_total",
            "Times a thread was as urgent as somebody who waited for it, and not by itself.",
            baton_machine::inheritances(),
        ),
        (
            "baton_threads_starved_total",
            "Times a thread was ready and did not come to run beside more urgent ones, and was helped.",
            starved(),
        ),
    ] {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {count}");
    }
}

fn append_buckets(text: &mut String, name: &str, class: Class, histogram: &Histogram) {
    let mut below = 0;
    for (bound, count) in BUCKETS_MICROS.iter().zip(&histogram.counts) {
        below += count;
        let _ = writeln!(text, "{name}_bucket{{class=\"{class}\",le=\"{}\"}} {below}", *bound as f64 / 1e6);
    }
    let _ = writeln!(text, "{name}_bucket{{class=\"{class}\",le=\"+Inf\"}} {}", histogram.count);
    let _ = writeln!(text, "{name}_sum{{class=\"{class}\"}} {}", histogram.sum_micros as f64 / 1e6);
    let _ = writeln!(text, "{name}_count{{class=\"{class}\"}} {}", histogram.count);
}

fn name_of(class: Class) -> &'static CStr {
    match class {
        Class::High => cstr!("high"),
        Class::Normal => cstr!("normal"),
        Class::Low | Class::Background => cstr!("low"),
    }
}

fn append_class(w: &mut DocumentWriter<'_>, counts: &Counts, class: Class, of: &OfClass) {
    let index = class.rank();
    w.append(cstr!("waiting"), counts.waiting[index] as i64);
    w.append(cstr!("present"), counts.present[index] as i64);
    w.append(cstr!("computing"), counts.computing[index] as i64);
    w.append(cstr!("seen"), of.waits.count as i64);
    w.append(cstr!("waited"), of.waited as i64);
    w.append(cstr!("worstWaitMicros"), of.worst_wait.as_micros() as i64);
    w.append(cstr!("aged"), of.aged as i64);
    w.begin_document(cstr!("refused"));
    w.append(cstr!("deadline"), of.refused_late as i64);
    w.append(cstr!("overload"), of.refused_overload as i64);
    w.end();
    w.append(cstr!("gaveUp"), of.gave_up as i64);
    append_histogram(w, cstr!("waitMicros"), &of.waits);
    append_histogram(w, cstr!("serviceMicros"), &of.services);
}

fn append_histogram(w: &mut DocumentWriter<'_>, name: &CStr, histogram: &Histogram) {
    w.begin_document(name);
    w.append(cstr!("count"), i64::try_from(histogram.count).unwrap_or(i64::MAX));
    w.append(cstr!("sum"), i64::try_from(histogram.sum_micros).unwrap_or(i64::MAX));
    w.append(cstr!("p50"), histogram.quantile_micros(0.5) as i64);
    w.append(cstr!("p95"), histogram.quantile_micros(0.95) as i64);
    w.append(cstr!("p99"), histogram.quantile_micros(0.99) as i64);
    w.end();
}

fn append_rules(w: &mut DocumentWriter<'_>, policy: &Policy) {
    w.begin_array(cstr!("rules"));
    for (rule, matched) in policy.settings.rules.iter().zip(policy.matched()) {
        w.push_document();
        w.begin_document(cstr!("match"));
        for (name, pattern) in rule.when.patterns() {
            if let Ok(name) = CString::try_from(name) {
                w.append(&name, pattern);
            }
        }
        w.end();
        w.append(cstr!("priority"), rule.class.name());
        w.append(cstr!("matched"), matched as i64);
        w.end();
    }
    w.end();
}
