// What the door is put through.

fn settings(mode: baton_admission::Mode) -> Settings {
    Settings { mode, worst_wait: Duration::from_secs(60), ..Settings::default() }
}

/// Comes to the door, and is served if he is let in; whether he was. `patience`: how often he is asked whether he still waits, and does.
fn visits(door: &Arc<Door>, class: Class, patience: usize) -> bool {
    let asked = std::cell::Cell::new(0);
    let check = || match asked.replace(asked.get() + 1) {
        count if count < patience => Ok(()),
        _ => Err(Error::new(ErrorCode::Interrupted, "killed")),
    };
    let visitor = Visitor { class, deadline: None, kind: &|| 1, check: &check, waits: &|| {} };
    let Ok(pass) = door.enter(&visitor) else { return false };
    if let Some(pass) = pass {
        pass.pause();
        if class == Class::Normal {
            pass.resume();
        }
    }
    true
}

/// Has visitors of these classes come, somebody look after the door, and all of them leave; how many were served.
fn carry_out(door: &Arc<Door>, visitors: &[(Class, usize)]) -> usize {
    let of = Arc::clone(door);
    let tends = shuttle::thread::spawn(move || of.tend());
    let threads: Vec<_> = visitors
        .iter()
        .map(|(class, patience)| {
            let (door, class, patience) = (Arc::clone(door), *class, *patience);
            shuttle::thread::spawn(move || visits(&door, class, patience))
        })
        .collect();
    let served = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|served| *served).count();
    door.stop();
    tends.join().unwrap();
    let (counts, _) = door.look();
    assert_eq!(
        (counts.waiting, counts.present, counts.computing),
        ([0; 3], [0; 3], [0; 3]),
        "somebody is still counted"
    );
    assert!(door.state.lock().waiters.is_empty(), "somebody is still to be told");
    served
}

/// All have patience, and no time comes: each is told to begin by one that leaves.
pub fn the_lower_wait() {
    crate::shuttled::time::begin(false);
    let door = Door::new(settings(baton_admission::Mode::Checkpoint));
    let visitors = [(Class::High, 1), (Class::Low, 1), (Class::Normal, 1), (Class::High, 1)];
    assert_eq!(carry_out(&door, &visitors), 4, "all are served");
}

/// As many as begin at once, and more.
pub fn a_place_for_each() {
    crate::shuttled::time::begin(false);
    let door = Door::new(settings(baton_admission::Mode::Full));
    let visitors = [Class::High, Class::Low, Class::Normal, Class::Low, Class::Normal, Class::High, Class::Low];
    assert_eq!(carry_out(&door, &visitors.map(|class| (class, 1))), visitors.len(), "all are served");
}

/// Some are killed, or their waits come to their end, in the moment in which they are told.
pub fn some_give_up() {
    crate::shuttled::time::begin(true);
    let door = Door::new(settings(baton_admission::Mode::Checkpoint));
    carry_out(&door, &[(Class::High, 9), (Class::Low, 0), (Class::Low, 1), (Class::Normal, 2)]);
}

/// One comes in the moment in which the last one who differed is forgotten.
pub fn one_comes_as_the_last_is_forgotten() {
    crate::shuttled::time::begin(false);
    let lately = Arc::new(Lately::default());
    lately.note(Duration::ZERO);
    let of = Arc::clone(&lately);
    let comes = shuttle::thread::spawn(move || of.note(Duration::from_secs(10)));
    lately.forget(Duration::from_secs(10), Duration::from_secs(2));
    comes.join().unwrap();
    assert!(lately.has(), "nobody is looked at, though one has come");
}

pub const SCENARIOS: &[(&str, fn())] = &[
    ("the_lower_wait", the_lower_wait),
    ("a_place_for_each", a_place_for_each),
    ("some_give_up", some_give_up),
    ("one_comes_as_the_last_is_forgotten", one_comes_as_the_last_is_forgotten),
];
