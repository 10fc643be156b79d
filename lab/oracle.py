"""How many requests could have been in time, for one who knew all of them before; and how many where the first that came is the first
served.

Source: as crates/proof/sim/src/door/oracle.rs, for requests that all take the same: taken in only if all that were taken in before stay in
time, in the order by deadline with interruptions, which no member may do.
"""

import bisect
import heapq


def in_time_at_most(jobs, takes):
    """Of jobs (when it came, by when it must be over), on one processor that has each done after it `takes` so long."""
    taken = []
    # Alike as they are, whoever has the nearest deadline blocks the fewest others.
    for job in sorted(jobs, key=lambda job: job[1]):
        at = bisect.bisect(taken, job)
        taken.insert(at, job)
        if not is_feasible(taken, takes):
            del taken[at]
    return len(taken)


def is_feasible(jobs, takes):
    """Whether all are in time, earliest deadline first, with interruptions; `jobs` in the order in which they come."""
    waiting, now, coming = [], 0.0, 0
    while waiting or coming < len(jobs):
        if not waiting:
            now = max(now, jobs[coming][0])
        while coming < len(jobs) and jobs[coming][0] <= now:
            heapq.heappush(waiting, [jobs[coming][1], takes])
            coming += 1
        first = waiting[0]
        until = now + first[1]
        if coming < len(jobs) and jobs[coming][0] < until:
            first[1] -= jobs[coming][0] - now
            now = jobs[coming][0]
            continue
        if until > first[0] + 1e-9:
            return False
        heapq.heappop(waiting)
        now = until
    return True


def in_time_in_turn(jobs, takes):
    """The same where they are served as they come and none is refused."""
    free_at, count = 0.0, 0
    for came_at, deadline in sorted(jobs):
        free_at = max(free_at, came_at) + takes
        count += free_at <= deadline
    return count
