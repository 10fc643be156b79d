//! `serverStatus.priority`: what the door has seen, by class, and how often each rule has matched.

use super::figures::{Figures, Histogram, OfClass};
use super::{Policy, Priority};
use baton_admission::Counts;
use baton_types::Class;
use baton_wire::DocumentWriter;
use bson::cstr;
use bson::raw::{CStr, CString};

/// Appends the section `priority`.
pub(crate) fn append_status(priority: &Priority, w: &mut DocumentWriter<'_>) {
    let policy = priority.policy();
    let (counts, figures) = priority.door.look();
    w.begin_document(cstr!("priority"));
    w.append(cstr!("mode"), policy.settings.mode.name());
    w.append(cstr!("niceness"), priority.right.name());
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

fn name_of(class: Class) -> &'static CStr {
    match class {
        Class::High => cstr!("high"),
        Class::Normal => cstr!("normal"),
        Class::Low | Class::Background => cstr!("low"),
    }
}

fn append_class(w: &mut DocumentWriter<'_>, counts: &Counts, class: Class, of: &OfClass) {
    let index = class as usize - Class::Low as usize;
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
