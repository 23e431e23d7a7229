/* How different the heads of a layer are: for each pair of them, the sum over rows of their Jensen-Shannon divergence,
 * H((w + w') / 2) - (H(w) + H(w')) / 2.
 *
 * All heads are read side by side, a panel each, so a panel is narrower here: that of every head, and their keys, are
 * to fit in the second-level cache. Every pair of heads asks for a logarithm per cell, and those are what this costs.
 * A cell adds w log(w / m) / 2 for either head, with m the mean of their weights: nothing large cancels, and a head
 * differs from its copy by nothing at all.
 */
#ifndef REGARD_DIVERGE_H
#define REGARD_DIVERGE_H

#include "panel.h"

#define NARROW 128 /* divides WIDTH, and is a multiple of STRIP */
#define SMALLEST 1.17549435e-38f

struct diverging {
    float (*cells)[ROWS][PITCH];  /* the weights of each head */
    float (*logs)[ROWS][NARROW]; /* and their logarithms */
    float *queries, *keys;
};

/* 0 log 0 is to be 0: no logarithm is infinite. */
static vec log_of(vec x)
{
    return vlog(vmax(x, splat(SMALLEST)));
}

/* What two heads differ by in a panel, over all its rows. */
static float differ(const struct diverging *work, int64_t a, int64_t b, int wide)
{
    vec sum = {0};
    for (int r = 0; r < ROWS; r++) {
        const float *wa = work->cells[a][r] + PAD, *wb = work->cells[b][r] + PAD;
        const float *la = work->logs[a][r], *lb = work->logs[b][r];
        for (int j = 0; j < wide; j += LANES) {
            vec x = load(wa + j), y = load(wb + j), mixed = log_of(0.5f * (x + y));
            sum += x * (load(la + j) - mixed) + y * (load(lb + j) - mixed);
        }
    }
    return 0.5f * total(sum);
}

/* The weights of one head, whose panel holds the same cells as those of the other heads. */
static void weigh_member(const struct panel *p, const float *queries, const float *keys)
{
    const struct job *job = p->job;
    struct tally tally[ROWS];
    float lse[ROWS];
    scores(p, queries, keys);
    hide(p);
    for (int r = 0; r < ROWS; r++)
        lse[r] = r < p->rows ? job->lse[p->row + r] : INFINITY;
    weigh(p, lse, tally);
    for (int r = 0; r < p->rows; r++)
        job->mass[p->row + r] += tally[r].mass;
}

/* From the first to the last key that some head sees; 0 if there is none. */
static int find_shared(const struct job *job, struct panel *p, int64_t first, int64_t stop)
{
    int64_t low = stop, high = first;
    for (int64_t h = 0; h < job->n_members; h++) {
        p->job = job->members[h];
        if (find_keys(p, first, stop)) {
            low = min(low, p->key + p->skip);
            high = max(high, p->key + p->keys);
        }
    }
    p->key = first;
    p->skip = (int)(low - first);
    p->keys = (int)(high - first);
    p->wide = (p->keys + STRIP - 1) / STRIP * STRIP;
    return low < high;
}

static void compare(const struct job *job, const struct diverging *work, const struct panel *p)
{
    int64_t n = job->n_members, at = p->row - job->row_start;
    for (int64_t h = 0; h < n; h++) {
        struct panel own = *p;
        own.job = job->members[h];
        own.cell = work->cells[h];
        int64_t rows = (job->row_stop - job->row_start + ROWS - 1) / ROWS * ROWS, dim = own.job->dim;
        weigh_member(&own, work->queries + (h * rows + at) * dim, work->keys + h * NARROW * dim);
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < p->wide; j += LANES)
                store(work->logs[h][r] + j, log_of(load(cells(&own, r) + j)));
    }
    for (int64_t a = 0; a < n; a++)
        for (int64_t b = a + 1; b < n; b++)
            job->divergence[a * n + b] += differ(work, a, b, p->wide);
}

static void diverge_keys(const struct job *job, const struct diverging *work, int64_t first, int64_t stop)
{
    int packed = job->members[0]->scores != NULL;
    for (int64_t row = job->row_start; row < job->row_stop; row += ROWS) {
        struct panel p = {.row = row, .rows = (int)min(ROWS, job->row_stop - row)};
        if (!find_shared(job, &p, first, stop))
            continue;
        for (int64_t h = 0; h < job->n_members && !packed; h++)
            pack_keys(job->members[h], first, stop, work->keys + h * NARROW * job->members[h]->dim);
        packed = 1;
        compare(job, work, &p);
    }
}

/* 0, or 1 if there is no memory left. */
static int diverge(const struct job *job)
{
    int64_t n = job->n_members, rows = (job->row_stop - job->row_start + ROWS - 1) / ROWS * ROWS;
    int64_t dim = job->members[0]->scores ? 0 : job->members[0]->dim, first = INT64_MAX, last = 0;
    size_t panels = sizeof(float[ROWS][PITCH]) * n, queries = sizeof(float) * n * rows * dim;
    size_t keys = sizeof(float) * n * NARROW * dim, logs = sizeof(float[ROWS][NARROW]) * n;
    char *block = malloc(panels + queries + keys + logs + 4 * 64), *next = block;
    if (!block)
        return 1;
    struct diverging work = {
        .cells = carve(&next, panels),
        .logs = carve(&next, logs),
        .queries = carve(&next, queries),
        .keys = carve(&next, keys),
    };
    for (int64_t h = 0; h < n; h++) {
        const struct job *member = job->members[h];
        if (dim)
            pack_queries(member, work.queries + h * rows * dim);
        if (member->n_runs) {
            first = min(first, member->runs[0].first);
            last = max(last, member->runs[member->n_runs - 1].stop);
        }
    }
    for (first = first / NARROW * NARROW; first < last; first += NARROW)
        diverge_keys(job, &work, first, min(first + NARROW, last));
    free(block);
    return 0;
}

#endif
