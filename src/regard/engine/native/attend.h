/* Attention itself, in one pass: the output and log-sum-exp of each row, and the statistics that belong to rows.
 *
 *     keys and values of 512 at a time, packed            pack_keys, pack_values
 *       panels of 8 rows
 *         scores, hidden where the mask says so           panel.h
 *         the largest score so far; sums move to it       lift
 *         w = exp(s - the largest so far)                 weigh
 *         out += w v, and other sums over a row           add_values, mix
 *     divided by the sum of weights                       settle
 *
 * A row belongs to one job, whose loops are always the same: no bit depends on the number of threads.
 */
#ifndef REGARD_ATTEND_H
#define REGARD_ATTEND_H

#include "panel.h"

/* What is known of a row so far. The sums are about exp(s - top); three numbers a row may well be doubles. */
struct row {
    float top;
    double mass, logs, away;
};

/* `out` holds (row, wide) sums of w v: values, up to a multiple of STRIP. */
struct attending {
    float (*cell)[PITCH];
    float *queries, *keys, *values, *out;
    struct row *rows;
    int64_t wide;
};

/* Not those of the C library: a wheel that asks for its newer ones does not run on older systems. */
static float exp_one(float x)
{
    return vexp(vmax(splat(x), splat(LOWEST)))[0];
}

static double log_one(double x)
{
    float near = (float)x;
    return vlog(splat(near))[0] + (x - near) / near;
}

/* Values of the keys first ... stop - 1 as (strip, key, column); columns that are not there are 0. */
static void pack_values(const struct job *job, int64_t first, int64_t stop, float *packed)
{
    for (int64_t c = 0; c < job->v_dim; c += STRIP, packed += WIDTH * STRIP) {
        size_t some = (size_t)min(STRIP, job->v_dim - c);
        for (int64_t key = first; key < stop; key++) {
            float *to = packed + (key - first) * STRIP;
            memcpy(to, job->v + key * job->v_stride + c, sizeof(float) * some);
            memset(to + some, 0, sizeof(float) * (STRIP - some));
        }
    }
}

/* Sums over weights of a lower top become sums over weights of a higher one. */
static void lift(const struct panel *p, const struct attending *work, const float *top, float *base)
{
    const struct job *job = p->job;
    int64_t at = p->row - job->row_start;
    for (int r = 0; r < ROWS; r++) {
        struct row *row = &work->rows[at + r];
        if (top[r] > row->top) {
            if (row->mass > 0) {
                double gap = (double)row->top - top[r], factor = exp_one((float)gap);
                row->logs = (row->logs + gap * row->mass) * factor;
                row->mass *= factor;
                row->away *= factor;
                for (int64_t c = 0; c < work->wide; c++)
                    work->out[(at + r) * work->wide + c] *= (float)factor;
                for (int64_t c = 0; c < job->n_columns; c++)
                    job->sums[(p->row + r) * job->n_columns + c] *= (float)factor;
            }
            row->top = top[r];
        }
        /* A row that has seen nothing: -inf - -inf is NaN. */
        base[r] = row->top > -INFINITY ? row->top : 0.0f;
    }
}

/* ROWS x STRIP sums of the output stay in registers while the keys go by. */
static void add_strip(const struct panel *p, const float *restrict v, float *restrict out, int64_t wide)
{
    vec sum[ROWS][VECTORS];
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < VECTORS; i++)
            sum[r][i] = load(out + r * wide + i * LANES);
    const float *w = cells(p, 0);
    v += p->skip * STRIP;
    for (int j = p->skip; j < p->keys; j++, v += STRIP)
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < VECTORS; i++)
                sum[r][i] += w[r * PITCH + j] * load(v + i * LANES);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < VECTORS; i++)
            store(out + r * wide + i * LANES, sum[r][i]);
}

static void add_values(const struct panel *p, const struct attending *work, int64_t first)
{
    float *out = work->out + (p->row - p->job->row_start) * work->wide;
    for (int64_t c = 0; c < work->wide; c += STRIP)
        add_strip(p, work->values + c * WIDTH + (p->key - first) * STRIP, out + c, work->wide);
}

static void attend_panel(const struct panel *p, const struct attending *work, int64_t first)
{
    const struct job *job = p->job;
    int64_t at = p->row - job->row_start;
    float top[ROWS], base[ROWS];
    struct tally tally[ROWS];
    scores(p, work->queries + at * job->dim, work->keys + (p->key - first) * job->dim);
    hide(p);
    find_tops(p, top);
    if (job->peak)
        note_peaks(p, top);
    lift(p, work, top, base);
    weigh(p, base, tally);
    for (int r = 0; r < p->rows; r++) {
        struct row *row = &work->rows[at + r];
        row->mass += tally[r].mass;
        row->logs += tally[r].logs;
        row->away += distance(p, r, &tally[r]);
    }
    add_values(p, work, first);
    if (job->n_columns)
        mix(p);
}

/* All rows against the keys first ... stop - 1, at most WIDTH. */
static void attend_keys(const struct job *job, const struct attending *work, int64_t first, int64_t stop)
{
    int packed = 0;
    for (int64_t row = job->row_start; row < job->row_stop; row += ROWS) {
        struct panel p = {.job = job, .row = row, .rows = (int)min(ROWS, job->row_stop - row), .cell = work->cell};
        if (!find_keys(&p, first, stop))
            continue;
        if (!packed) {
            pack_keys(job, first, stop, work->keys);
            pack_values(job, first, stop, work->values);
            packed = 1;
        }
        attend_panel(&p, work, first);
    }
}

/* Sums become means. A row that sees nothing has 0 everywhere and lse -inf; one whose scores overflow has NaN. */
static void settle(const struct job *job, const struct attending *work)
{
    for (int64_t at = 0; at < job->row_stop - job->row_start; at++) {
        struct row *row = &work->rows[at];
        int64_t r = job->row_start + at;
        double share = row->mass > 0 ? 1 / row->mass : 0.0, log_mass = row->mass > 0 ? log_one(row->mass) : 0.0;
        if (row->top == INFINITY)
            share = log_mass = NAN;
        for (int64_t c = 0; c < job->v_dim; c++)
            job->out[r * job->out_stride + c] = work->out[at * work->wide + c] * (float)share;
        for (int64_t c = 0; c < job->n_columns; c++)
            job->sums[r * job->n_columns + c] *= (float)share;
        job->out_lse[r] = (float)(row->top + log_mass);
        if (job->entropy) {
            double entropy = log_mass - row->logs * share;
            job->entropy[r] = (float)(entropy < 0 ? 0 : entropy);
        }
        if (job->distance)
            job->distance[r] = (float)(row->away * share);
    }
}

/* 0, or 1 if there is no memory left. */
static int attend(const struct job *job)
{
    int64_t rows = (job->row_stop - job->row_start + ROWS - 1) / ROWS * ROWS;
    int64_t wide = (job->v_dim + STRIP - 1) / STRIP * STRIP;
    size_t panel = sizeof(float[ROWS][PITCH]), known = sizeof(struct row) * rows;
    size_t queries = sizeof(float) * rows * job->dim, out = sizeof(float) * rows * wide;
    size_t keys = sizeof(float) * WIDTH * job->dim, values = sizeof(float) * WIDTH * wide;
    char *block = malloc(panel + queries + keys + values + out + known + 6 * 64), *next = block;
    if (!block)
        return 1;
    struct attending work = {
        .cell = carve(&next, panel),
        .queries = carve(&next, queries),
        .keys = carve(&next, keys),
        .values = carve(&next, values),
        .out = carve(&next, out),
        .rows = carve(&next, known),
        .wide = wide,
    };
    pack_queries(job, work.queries);
    memset(work.out, 0, out);
    for (int64_t at = 0; at < rows; at++)
        work.rows[at] = (struct row){.top = -INFINITY};
    int64_t last = job->n_runs ? job->runs[job->n_runs - 1].stop : 0;
    for (int64_t first = last ? job->runs[0].first / WIDTH * WIDTH : 0; first < last; first += WIDTH)
        attend_keys(job, &work, first, min(first + WIDTH, last));
    settle(job, &work);
    free(block);
    return 0;
}

#endif
