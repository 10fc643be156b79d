// What the room on the processors is put through. Nobody's patience ends.

use std::sync::Arc;

struct Stage {
    room: Room,
    /// The workers in a turn.
    turns: AtomicUsize,
}

/// A thread that is so often in a turn, each of which somebody else has after it.
fn worker(stage: &Arc<Stage>, processors: usize, turns: usize) -> shuttle::thread::JoinHandle<()> {
    let stage = Arc::clone(stage);
    shuttle::thread::spawn(move || {
        for _ in 0..turns {
            stage.room.take_in_turn(&mut 0, || 0);
            assert!(stage.turns.fetch_add(1, SeqCst) < processors, "more are in a turn than there are processors");
            stage.turns.fetch_sub(1, SeqCst);
            stage.room.leave();
        }
    })
}

fn stage(processors: usize) -> Arc<Stage> {
    crate::shuttled::time::begin(false);
    let room = Room::new(processors, Duration::ZERO);
    Arc::new(Stage { room, turns: AtomicUsize::new(0) })
}

/// Two workers have two turns each beside one that goes before them twice: all of them have theirs, one at a time.
pub fn urgent_ones_come_and_go() {
    let stage = stage(1);
    let mut threads = vec![worker(&stage, 1, 2), worker(&stage, 1, 2)];
    let of = Arc::clone(&stage);
    threads.push(shuttle::thread::spawn(move || {
        for _ in 0..2 {
            of.room.begin_serving();
            of.room.end_serving();
        }
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Two go before two workers on two processors, one after the other; a worker's turn takes until the other worker has had one.
pub fn two_have_room_at_once() {
    let stage = stage(2);
    (0..2).for_each(|_| stage.room.begin_serving());
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let stage = Arc::clone(&stage);
            shuttle::thread::spawn(move || {
                stage.room.take_in_turn(&mut 0, || 0);
                stage.turns.fetch_add(1, SeqCst);
                while stage.turns.load(SeqCst) < 2 {
                    shuttle::thread::yield_now();
                }
                stage.room.give_back();
            })
        })
        .collect();
    (0..2).for_each(|_| stage.room.end_serving());
    workers.into_iter().for_each(|thread| thread.join().unwrap());
}

pub const SCENARIOS: &[(&str, fn())] =
    &[("urgent_ones_come_and_go", urgent_ones_come_and_go), ("two_have_room_at_once", two_have_room_at_once)];
