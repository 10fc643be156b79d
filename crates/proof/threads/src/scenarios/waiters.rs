// What those who wait for a majority are put through.

/// What the waits that were left have been told.
type ToldLeft = Arc<Mutex<Vec<(u64, bool)>>>;

fn at(increment: u32) -> OpTime {
    OpTime { term: 1, timestamp: baton_types::Timestamp { seconds: 1, increment } }
}

fn stepped_down() -> Error {
    Error::new(ErrorCode::PrimarySteppedDown, "stepped down")
}

/// A wait that is left, of that era.
struct Leaver {
    era: u64,
    told: ToldLeft,
    /// It is killed once it was asked.
    is_killed: bool,
    asked: std::sync::atomic::AtomicBool,
}

impl Waits for Leaver {
    fn check(&self) -> Result<()> {
        match self.asked.swap(true, std::sync::atomic::Ordering::Relaxed) && self.is_killed {
            true => Err(Error::new(ErrorCode::Interrupted, "killed")),
            false => Ok(()),
        }
    }

    fn ended(self: Box<Self>, outcome: Result<()>) {
        self.told.lock().push((self.era, outcome.is_ok()));
    }
}

fn left(told: &ToldLeft, era: u64, until: Option<Instant>, is_killed: bool) -> Left {
    let asked = std::sync::atomic::AtomicBool::new(false);
    Left { class: Class::Normal, until, of: Box::new(Leaver { era, told: Arc::clone(told), is_killed, asked }) }
}

fn assert_nothing_is_left(waiters: &Waiters) {
    assert!(waiters.state.lock().waiting.is_empty() && waiters.ended.lock().is_empty(), "a wait is left behind");
}

/// Two threads bring the commit point on, while some wait for each of its places.
pub fn two_bring_news() {
    crate::shuttled::time::begin(false);
    let (waiters, told) = (Arc::new(Waiters::default()), ToldLeft::default());
    let mut threads = Vec::new();
    for place in [1, 2] {
        let of = Arc::clone(&waiters);
        threads.push(shuttle::thread::spawn(move || {
            of.committed(at(place));
            of.tell();
        }));
        let of = Arc::clone(&waiters);
        threads.push(shuttle::thread::spawn(move || of.await_majority(0, at(place), None, || Ok(())).unwrap()));
    }
    waiters.when_majority(0, at(2), left(&told, 0, None, false));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*told.lock(), [(0, true)], "who has left is told once");
    assert_nothing_is_left(&waiters);
}

/// A step-down, and a commit of the term that follows, while some begin to wait in the one era or the other.
pub fn an_era_ends() {
    crate::shuttled::time::begin(false);
    let (waiters, told) = (Arc::new(Waiters::default()), ToldLeft::default());
    let of = Arc::clone(&waiters);
    let news = shuttle::thread::spawn(move || {
        of.fail_all(&stepped_down());
        of.tell();
        of.committed(at(9));
        of.tell();
    });
    let of = Arc::clone(&waiters);
    let waits = shuttle::thread::spawn(move || {
        let era = of.era();
        assert_eq!(of.await_majority(era, at(5), None, || Ok(())).is_ok(), era == 1, "of the era {era}");
    });
    let era = waiters.era();
    waiters.when_majority(era, at(5), left(&told, era, None, false));
    news.join().unwrap();
    waits.join().unwrap();
    assert_eq!(*told.lock(), [(era, era == 1)], "who has left is told once, of its own era");
    assert_nothing_is_left(&waiters);
}

/// Times come, and operations are killed, while the commit point passes them.
pub fn waits_end_by_their_time() {
    crate::shuttled::time::begin(true);
    let (waiters, told) = (Arc::new(Waiters::default()), ToldLeft::default());
    let soon = Some(Instant::now() + Duration::from_millis(10));
    let of = Arc::clone(&waiters);
    let news = shuttle::thread::spawn(move || {
        of.committed(at(1));
        of.tell();
    });
    let of = Arc::clone(&waiters);
    let waits = shuttle::thread::spawn(move || {
        let _ = of.await_majority(0, at(2), soon, || Ok(()));
    });
    let of = Arc::clone(&waiters);
    let tends = shuttle::thread::spawn(move || of.tend(Duration::from_millis(50)));
    waiters.when_majority(0, at(1), left(&told, 0, soon, false));
    waiters.when_majority(0, at(1), left(&told, 0, None, true));
    waiters.when_majority(0, at(2), left(&told, 0, None, true));
    [news, waits, tends].into_iter().for_each(|thread| thread.join().unwrap());
    while told.lock().len() < 3 {
        waiters.tend(Duration::from_millis(50));
    }
    assert_eq!(told.lock().len(), 3, "everybody is told once");
    assert_nothing_is_left(&waiters);
}

pub const SCENARIOS: &[(&str, fn())] = &[
    ("two_bring_news", two_bring_news),
    ("an_era_ends", an_era_ends),
    ("waits_end_by_their_time", waits_end_by_their_time),
];
