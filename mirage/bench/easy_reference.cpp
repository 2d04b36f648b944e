// EASY backfilling on one pool of processors: the C++ yardstick of `mirage bench simulator`.
//
//   easy_reference FILE REPETITIONS
//
// FILE holds 64-bit integers in native byte order: the number of jobs n, the pool's capacity, then four columns of
// n values each: submit (ascending), run time (capped at the request), request (> 0), processors. Prints one JSON
// document: the seconds of the fastest repetition of the simulation alone (state rebuilt each time; reading the file
// excluded), mean wait, mean bounded slowdown (10 s). Rules: see tests/simulator/reference_easy.py; at an instant
// all ends, then all submits, then one pass; a job that does not fit the pool is skipped.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <queue>
#include <vector>

using i64 = std::int64_t;

struct Trace {
    i64 capacity = 0;
    std::vector<i64> submit, runtime, request, procs;
};

struct Waiting {
    i64 procs, request;
    std::size_t job;
};

struct Release {
    i64 time, procs;
};

struct End {
    i64 time, expected, procs;
    bool operator>(const End& other) const { return time > other.time; }
};

class Pool {
public:
    explicit Pool(const Trace& trace)
        : trace_(trace), free_(trace.capacity), starts_(trace.submit.size(), -1) {}

    std::vector<i64> run() {
        const std::size_t count = trace_.submit.size();
        std::size_t next = 0;
        while (next < count || !ends_.empty()) {
            const i64 now = next == count    ? ends_.top().time
                            : ends_.empty()  ? trace_.submit[next]
                                             : std::min(ends_.top().time, trace_.submit[next]);
            finish(now);
            for (; next < count && trace_.submit[next] == now; ++next)
                if (trace_.procs[next] <= trace_.capacity)
                    queue_.push_back({trace_.procs[next], trace_.request[next], next});
            schedule(now);
        }
        return std::move(starts_);
    }

private:
    void finish(i64 now) {
        for (; !ends_.empty() && ends_.top().time <= now; ends_.pop()) {
            const End& end = ends_.top();
            auto at = std::lower_bound(releases_.begin(), releases_.end(), end.expected, before);
            while (at->procs != end.procs) ++at;
            releases_.erase(at);
            free_ += end.procs;
        }
    }

    // One pass over the whole queue.
    void schedule(i64 now) {
        while (head_ < queue_.size() && queue_[head_].procs <= free_) start(queue_[head_++], now);
        if (head_ == queue_.size()) {
            queue_.clear();
            head_ = 0;
            return;
        }
        if (free_ == 0) return;
        const Release shadow = reserve(queue_[head_].procs);
        i64 extra = shadow.procs;
        std::size_t kept = head_ + 1, at = kept;
        for (; at < queue_.size() && free_ > 0; ++at) {
            const Waiting& job = queue_[at];
            const bool in_time = now + job.request <= shadow.time;
            if (job.procs <= free_ && (in_time || job.procs <= extra)) {
                if (!in_time) extra -= job.procs;
                start(job, now);
            } else {
                queue_[kept++] = job;
            }
        }
        if (kept != at) queue_.erase(queue_.begin() + kept, queue_.begin() + at);
    }

    // The head's shadow time, and the processors beyond its need then.
    Release reserve(i64 need) const {
        i64 free = free_;
        std::size_t at = 0;
        while (free < need) free += releases_[at++].procs;
        const i64 time = releases_[at - 1].time;
        for (; at < releases_.size() && releases_[at].time == time; ++at) free += releases_[at].procs;
        return {time, free - need};
    }

    void start(const Waiting& job, i64 now) {
        starts_[job.job] = now;
        free_ -= job.procs;
        const i64 expected = now + job.request;
        releases_.insert(std::lower_bound(releases_.begin(), releases_.end(), expected, before),
                         {expected, job.procs});
        ends_.push({now + trace_.runtime[job.job], expected, job.procs});
    }

    static bool before(const Release& release, i64 time) { return release.time < time; }

    const Trace& trace_;
    i64 free_;
    std::vector<i64> starts_;
    std::vector<Waiting> queue_;  // from head_ on, in order of submission
    std::size_t head_ = 0;
    std::vector<Release> releases_;  // of running jobs, by expected end
    std::priority_queue<End, std::vector<End>, std::greater<End>> ends_;
};

static Trace read_trace(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    i64 shape[2];
    if (!file || std::fread(shape, sizeof(i64), 2, file) != 2) {
        std::fprintf(stderr, "%s: cannot be read\n", path);
        std::exit(1);
    }
    Trace trace;
    trace.capacity = shape[1];
    const auto count = static_cast<std::size_t>(shape[0]);
    for (auto* column : {&trace.submit, &trace.runtime, &trace.request, &trace.procs}) {
        column->resize(count);
        if (std::fread(column->data(), sizeof(i64), count, file) != count) {
            std::fprintf(stderr, "%s: shorter than its header says\n", path);
            std::exit(1);
        }
    }
    std::fclose(file);
    return trace;
}

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s FILE REPETITIONS\n", argv[0]);
        return 2;
    }
    const Trace trace = read_trace(argv[1]);
    double best = 1e300;
    std::vector<i64> starts;
    for (int left = std::max(1, std::atoi(argv[2])); left > 0; --left) {
        const auto begin = std::chrono::steady_clock::now();
        starts = Pool(trace).run();
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
        best = std::min(best, spent.count());
    }
    double wait = 0, slowdown = 0;
    std::size_t started = 0;
    for (std::size_t job = 0; job < starts.size(); ++job) {
        if (starts[job] < 0) continue;
        const double waited = double(starts[job] - trace.submit[job]), ran = double(trace.runtime[job]);
        wait += waited;
        slowdown += std::max(1.0, (waited + ran) / std::max(ran, 10.0));
        ++started;
    }
    const double jobs = double(std::max<std::size_t>(started, 1));
    std::printf("{\"jobs\": %zu, \"seconds\": %.9f, \"mean_wait\": %.6f, \"mean_bounded_slowdown\": %.6f}\n",
                started, best, wait / jobs, slowdown / jobs);
}
