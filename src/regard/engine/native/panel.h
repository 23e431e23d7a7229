/* A panel: a few rows of one head against a few hundred keys, small enough for the first-level cache.
 *
 * Here is what every kernel does with one: scores, the mask, weights, and what belongs to rows alone.
 *
 * - Every score is a number or -inf; the caller looks first. NaN can only stand in pairs that may not attend, and
 *   `hide` overwrites those before they are read.
 * - A panel is wider than its keys: columns up to a multiple of the vector, and PAD on both sides, hold weight 0.
 */
#ifndef REGARD_PANEL_H
#define REGARD_PANEL_H

#include "job.h"
#include "lanes.h"

#include <math.h>
#include <stdlib.h>

#define ROWS 8
#define WIDTH 512
#define STRIP (VECTORS * LANES) /* columns of a product whose sums are kept in registers */
#define PAD 64                  /* at least ROWS, a vector, and PEEK */
#define PEEK 64                 /* weights looked at together; what that reads past a panel's end is padding */
#define PITCH (PAD + WIDTH + PAD)

struct panel {
    const struct job *job;
    int64_t row, key; /* of the first cell */
    int rows;         /* that are real; the others see nothing */
    int skip, keys;   /* columns skip ... keys - 1 lie between the first and the last key seen */
    int wide;         /* keys, up to a multiple of STRIP */
    float (*cell)[PITCH];
};

static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

static float *cells(const struct panel *p, int row) { return p->cell[row] + PAD; }

/* -- scores ---------------------------------------------------------------------------------------------------- */

/* Queries as (panel, dim, row), scaled; rows that are not there are 0. */
static void pack_queries(const struct job *job, float *packed)
{
    for (int64_t row = job->row_start; row < job->row_stop; row += ROWS, packed += ROWS * job->dim)
        for (int r = 0; r < ROWS; r++) {
            const float *q = job->q + (row + r) * job->q_stride;
            for (int64_t c = 0; c < job->dim; c++)
                packed[c * ROWS + r] = row + r < job->row_stop ? q[c] * (float)job->scale : 0.0f;
        }
}

/* Keys first ... stop - 1 as (strip, dim, column); columns that are not there are 0. */
static void pack_keys(const struct job *job, int64_t first, int64_t stop, float *packed)
{
    for (int64_t key = first; key < stop; key += STRIP, packed += STRIP * job->dim)
        for (int j = 0; j < STRIP; j++) {
            const float *k = job->k + (key + j) * job->k_stride;
            for (int64_t c = 0; c < job->dim; c++)
                packed[c * STRIP + j] = key + j < stop ? k[c] : 0.0f;
        }
}

/* ROWS x STRIP scores. The loops over rows and vectors have fixed lengths: unrolled, their sums stay in registers. */
static void multiply(const float *restrict q, const float *restrict k, int64_t dim, float (*out)[PITCH], int column)
{
    vec sum[ROWS][VECTORS] = {0};
    for (int64_t c = 0; c < dim; c++, q += ROWS, k += STRIP)
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECTORS; v++)
                sum[r][v] += q[r] * load(k + v * LANES);
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECTORS; v++)
            store(out[r] + PAD + column + v * LANES, sum[r][v]);
}

static void copy_scores(const struct panel *p)
{
    const struct job *job = p->job;
    for (int r = 0; r < p->rows; r++) {
        const float *from = job->scores + (p->row - job->row_start + r) * job->scores_stride;
        from += p->key + p->skip - job->scores_first;
        memcpy(cells(p, r) + p->skip, from, sizeof(float) * (p->keys - p->skip));
    }
}

static void scores(const struct panel *p, const float *queries, const float *keys)
{
    if (p->job->scores) {
        copy_scores(p);
        return;
    }
    for (int column = 0; column < p->wide; column += STRIP)
        multiply(queries, keys + column * p->job->dim, p->job->dim, p->cell, column);
}

static void block(float *s, int64_t from, int64_t to)
{
    for (; from < to; from++)
        s[from] = -INFINITY;
}

/* -inf where a pair may not attend, and in columns and rows that are not there. */
static void hide(const struct panel *p)
{
    const struct job *job = p->job;
    for (int r = 0; r < ROWS; r++) {
        float *s = cells(p, r);
        int64_t row = p->row + r, done = 0, low = p->key, high = r < p->rows ? p->key + p->keys : p->key;
        if (job->low && r < p->rows) {
            low = max(low, job->low[row]);
            high = min(high, job->high[row]);
        }
        for (const struct run *run = job->runs; run < job->runs + job->n_runs && run->first < high; run++) {
            int64_t from = max(run->first, low) - p->key, to = min(run->stop, high) - p->key;
            if (from >= to)
                continue;
            block(s, done, from);
            done = to;
            if (run->allowed) {
                const uint8_t *allowed = run->allowed + (row - job->row_start) * run->allowed_stride;
                allowed += p->key - run->first;
                for (int64_t j = from; j < to; j++)
                    s[j] = allowed[j] ? s[j] : -INFINITY;
            }
        }
        block(s, done, p->wide);
    }
}

/* The largest score of each row, -inf where there is none. */
static void find_tops(const struct panel *p, float *top)
{
    for (int r = 0; r < ROWS; r++) {
        const float *s = cells(p, r);
        /* One maximum waits for the last: VECTORS of them side by side wait less. */
        vec tops[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            tops[v] = splat(-INFINITY);
        for (int j = 0; j < p->wide; j += STRIP)
            for (int v = 0; v < VECTORS; v++)
                tops[v] = vmax(tops[v], load(s + j + v * LANES));
        top[r] = largest(vmax(tops[0], tops[VECTORS - 1]));
    }
}

/* The first column that holds the largest number of a row. */
static int first_of(const float *s, float top)
{
    const unsigned all = (1u << LANES) - 1;
    for (int j = 0;; j += LANES) {
        unsigned less = above(splat(top), load(s + j));
        if (less != all)
            return j + __builtin_ctz(~less);
    }
}

/* Keys come in rising order, so of two equal scores the one seen first is the one to keep. */
static void note_peaks(const struct panel *p, const float *top)
{
    for (int r = 0; r < p->rows; r++)
        if (top[r] > p->job->peak[p->row + r]) {
            p->job->peak[p->row + r] = top[r];
            p->job->peak_key[p->row + r] = p->key + first_of(cells(p, r), top[r]);
        }
}

/* -- weights --------------------------------------------------------------------------------------------------- */

/* Sums over one row of a panel: w, w (s - base), and w times the number of the column. */
struct tally {
    float mass, logs, steps;
};

/* Scores become weights, w = exp(s - base). The sums of a row are so cheap here that they are always made. */
static void weigh(const struct panel *p, const float *base, struct tally *tally)
{
    vec count;
    for (int i = 0; i < LANES; i++)
        count[i] = (float)i;
    for (int r = p->rows; r < ROWS; r++) {
        memset(cells(p, r) - PAD, 0, sizeof(float) * (p->wide + 2 * PAD));
        tally[r] = (struct tally){0};
    }
    for (int r = 0; r < p->rows; r++) {
        float *s = cells(p, r);
        vec logs = {0}, mass = {0}, steps = {0}, step = count;
        for (int j = 0; j < p->wide; j += LANES) {
            vec x = load(s + j) - base[r];
            /* Where a weight is 0, the exponential of 0 is made and put away: 0 * -inf is NaN, and on some processors
             * a number that is too small to be normal takes 150 cycles. */
            ivec seen = x > splat(LOWEST);
            x = (vec)((ivec)x & seen);
            vec w = (vec)((ivec)vexp(x) & seen);
            logs += w * x;
            mass += w;
            steps += w * step;
            step += (float)LANES;
            store(s + j, w);
        }
        memset(s - PAD, 0, sizeof(float) * PAD);
        memset(s + p->wide, 0, sizeof(float) * PAD);
        tally[r] = (struct tally){total(mass), total(logs), total(steps)};
    }
}

/* Measured from the panel's first key, so that a near key far down the text keeps its digits. */
static float distance(const struct panel *p, int r, const struct tally *tally)
{
    return tally->mass * (float)(p->row + r + p->job->offset - p->key) - tally->steps;
}

static void mix(const struct panel *p)
{
    const struct job *job = p->job;
    for (int64_t c = 0; c < job->n_columns; c++) {
        int64_t from = max(job->support[2 * c] - p->key, 0) / LANES * LANES;
        int64_t to = min(job->support[2 * c + 1] - p->key, p->wide);
        if (from >= to)
            continue;
        const float *g = job->columns + c * job->columns_stride + p->key;
        vec sum[ROWS] = {0};
        for (int64_t j = from; j < to; j += LANES) {
            vec x = load(g + j);
            for (int r = 0; r < ROWS; r++)
                sum[r] += load(cells(p, r) + j) * x;
        }
        for (int r = 0; r < p->rows; r++)
            job->sums[(p->row + r) * job->n_columns + c] += total(sum[r]);
    }
}

/* -- pieces ---------------------------------------------------------------------------------------------------- */

/* The part of first ... stop - 1 that some row of a panel may see; 0 if there is none. */
static int find_keys(struct panel *p, int64_t first, int64_t stop)
{
    const struct job *job = p->job;
    int64_t low = stop, high = first;
    for (int64_t row = p->row; row < p->row + p->rows; row++) {
        int64_t from = job->low ? job->low[row] : first, to = job->high ? job->high[row] : stop;
        for (const struct run *run = job->runs; run < job->runs + job->n_runs; run++) {
            int64_t a = max(max(run->first, from), first), b = min(min(run->stop, to), stop);
            if (a < b) {
                low = min(low, a);
                high = max(high, b);
            }
        }
        if (!job->low)
            break;
    }
    p->key = first + (low - first) / STRIP * STRIP;
    p->skip = (int)(low - p->key);
    p->keys = (int)(high - p->key);
    p->wide = (p->keys + STRIP - 1) / STRIP * STRIP;
    return low < high;
}

/* The next `bytes` of a block of memory, on a cache line of their own. */
static void *carve(char **block, size_t bytes)
{
    char *part = *block + (-(uintptr_t)*block & 63);
    *block = part + bytes;
    return part;
}

#endif
