/* Folds the cells of an attention map into statistics while they are in the cache.
 *
 * A map of n x n weights is never stored. This file computes it again from q, k and one log-sum-exp per row, a panel
 * of 8 rows x 512 keys at a time, and before a panel's memory is used for the next it has been read by everything that
 * was asked for. A panel fits in the first-level cache, so reading it once more costs next to nothing: that is why each
 * statistic below is a loop of its own.
 *
 *     keys of 512 at a time, packed                       pack_keys
 *       panels of 8 rows
 *         s = scale * q k^T, or copied from the caller    scores
 *         -inf where a pair may not attend                hide
 *         what is about scores                            note_peaks, count
 *         w = exp(s - lse)                                weigh
 *         what is about weights                           mix, add_columns, ...
 *
 * Rules that the loops rely on:
 * - Every score is a number or -inf, and every lse a number or +inf (a row that sees nothing); the caller looks first.
 *   NaN can only stand in pairs that may not attend, and `hide` overwrites those before anybody reads them.
 * - A panel is wider than its keys: columns up to a multiple of the vector, and PAD on both sides, hold weight 0.
 * - Keys come in rising order, so of two equal entries the one seen first is the one to keep.
 * - No loop depends on the number of threads. Whoever splits a map over threads splits it the same way every time,
 *   gives each part its own sums, and adds those up in a fixed order.
 */
#include "job.h"
#include "lanes.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

/* The threads that PyTorch's own operations run on, where its OpenMP is GNU's and in this process. They are awake when
 * an operation has just ended; threads of our own would have to wait until those stop spinning. */
#if defined(__linux__)
void GOMP_parallel(void (*work)(void *), void *given, unsigned threads, unsigned flags) __attribute__((weak));
#else
static void (*const GOMP_parallel)(void (*)(void *), void *, unsigned, unsigned) = NULL;
#endif

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

static void note_peaks(const struct panel *p)
{
    for (int r = 0; r < p->rows; r++) {
        const float *s = cells(p, r);
        /* One maximum waits for the last: VECTORS of them side by side wait less. */
        vec tops[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            tops[v] = splat(-INFINITY);
        for (int j = 0; j < p->wide; j += STRIP)
            for (int v = 0; v < VECTORS; v++)
                tops[v] = vmax(tops[v], load(s + j + v * LANES));
        float top = largest(vmax(tops[0], tops[VECTORS - 1]));
        if (top > p->job->peak[p->row + r]) {
            p->job->peak[p->row + r] = top;
            p->job->peak_key[p->row + r] = p->key + first_of(s, top);
        }
    }
}

/* -- weights --------------------------------------------------------------------------------------------------- */

/* Scores become weights. The sums of a row are so cheap here that they are always made. */
static void weigh(const struct panel *p)
{
    const struct job *job = p->job;
    vec count;
    for (int i = 0; i < LANES; i++)
        count[i] = (float)i;
    for (int r = 0; r < ROWS; r++) {
        float *s = cells(p, r), lse = r < p->rows ? job->lse[p->row + r] : INFINITY;
        vec logs = {0}, mass = {0}, steps = {0}, step = count;
        for (int j = 0; j < p->wide; j += LANES) {
            /* 0 * -inf is NaN: nothing goes lower than where a weight is 0. */
            vec x = vmax(load(s + j) - lse, splat(LOWEST)), w = vexp(x);
            logs += w * x;
            mass += w;
            steps += w * step;
            step += (float)LANES;
            store(s + j, w);
        }
        memset(s - PAD, 0, sizeof(float) * PAD);
        memset(s + p->wide, 0, sizeof(float) * PAD);
        if (job->entropy && r < p->rows)
            job->entropy[p->row + r] -= total(logs);
        if (job->distance && r < p->rows) {
            /* Measured from the panel's first key, so that a near key far down the text keeps its digits. */
            float away = (float)(p->row + r + job->offset - p->key);
            job->distance[p->row + r] += total(mass) * away - total(steps);
        }
    }
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

static void add_columns(const struct panel *p)
{
    float weight[ROWS] = {0};
    for (int r = 0; r < p->rows; r++)
        weight[r] = p->job->row_weights ? p->job->row_weights[p->row + r] : 1.0f;
    float *to = p->job->column_sums + p->key;
    for (int j = 0; j < p->wide; j += LANES) {
        vec sum = {0};
        for (int r = 0; r < ROWS; r++)
            sum += weight[r] * load(cells(p, r) + j);
        store(to + j, load(to + j) + sum);
    }
}

/* The cells of a diagonal lie one column further in each row. Before the first column and after the last are zeros. */
static void add_diagonals(const struct panel *p)
{
    float *to = p->job->diagonals + p->key - p->row;
    for (int j = -LANES * ((ROWS + LANES - 1) / LANES); j < p->wide; j += LANES) {
        vec sum = {0};
        for (int r = 0; r < ROWS; r++)
            sum += load(cells(p, r) + j + r);
        store(to + j, load(to + j) + sum);
    }
}

/* Lists a weight that is above the last of k weights in falling order; equals keep their order. */
static void insert(float *top, int64_t *keys, int64_t k, float w, int64_t key)
{
    int64_t place = k - 1;
    for (; place > 0 && top[place - 1] < w; place--) {
        top[place] = top[place - 1];
        keys[place] = keys[place - 1];
    }
    top[place] = w;
    keys[place] = key;
}

/* One bit for each of PEEK weights above a bar: few are, and one look finds that out. */
static uint64_t above_bar(const float *w, float bar)
{
    uint64_t found = 0;
    for (int i = 0; i < PEEK; i += LANES)
        found |= (uint64_t)above(load(w + i), splat(bar)) << i;
    return found;
}

/* A bar for a row that has listed nothing yet, where everything would be listed and most of it pushed out again. The
 * largest numbers of each lane are LANES weights of the row, so the k-th of them is at most its k-th largest. */
static float first_bar(const float *w, int wide, int64_t k)
{
    vec tops = {0};
    for (int j = 0; j < wide; j += LANES)
        tops = vmax(tops, load(w + j));
    float bar = INFINITY;
    for (int i = 0; i < LANES; i++)
        if (__builtin_popcount(above(tops, splat(tops[i]))) < k && tops[i] < bar)
            bar = tops[i];
    /* Just below it, as it is to be listed itself; next to 0 there may be nothing just below. */
    float below = bar * (1.0f - 0x1p-23f);
    return below < bar ? below : 0.0f;
}

static void list_top(const struct panel *p)
{
    int64_t k = p->job->top_k;
    for (int r = 0; r < p->rows; r++) {
        const float *w = cells(p, r);
        float *top = p->job->top + (p->row + r) * k;
        int64_t *keys = p->job->top_key + (p->row + r) * k;
        float bar = top[k - 1] == 0.0f && k <= LANES ? first_bar(w, p->wide, k) : 0.0f;
        for (int j = 0; j < p->wide; j += PEEK) {
            bar = bar > top[k - 1] ? bar : top[k - 1];
            for (uint64_t found = above_bar(w + j, bar); found; found &= found - 1) {
                int at = j + __builtin_ctzll(found);
                /* The last one listed may have risen since. */
                if (w[at] > top[k - 1])
                    insert(top, keys, k, w[at], p->key + at);
            }
        }
    }
}

static void count(const struct panel *p)
{
    const struct job *job = p->job;
    vec tops = splat(-INFINITY);
    for (int r = 0; r < p->rows; r++)
        for (int j = 0; j < p->wide; j += LANES)
            tops = vmax(tops, load(cells(p, r) + j));
    float top = largest(tops);
    for (int64_t b = 0; b < job->n_borders && job->borders[b] <= top; b++) {
        vec border = splat(job->borders[b]);
        ivec reached = {0};
        for (int r = 0; r < p->rows; r++)
            for (int j = 0; j < p->wide; j += LANES)
                reached -= load(cells(p, r) + j) >= border;
        for (int i = 0; i < LANES; i++)
            job->bins[b] += reached[i];
    }
}

/* -- blocks ---------------------------------------------------------------------------------------------------- */

/* Blocks are as high as they like. Down the rows they are kept as one sum and one maximum per column; where a row of
 * blocks ends, the columns are folded too. */
struct band {
    float sum[WIDTH + PAD], top[WIDTH + PAD];
    int64_t first; /* the key of entry 0 */
    int from, to;  /* the entries in use */
};

static void clear_band(struct band *band)
{
    memset(band->sum, 0, sizeof band->sum);
    memset(band->top, 0, sizeof band->top);
    band->from = WIDTH;
    band->to = 0;
}

static void close_band(const struct job *job, struct band *band, int64_t row)
{
    int64_t down = row / job->size - job->row_start / job->size;
    /* Divisions are slow, and blocks may be small: their number is counted on. */
    int64_t block = (band->first + band->from) / job->size;
    for (int j = band->from; j < band->to; block++) {
        int stop = (int)min((block + 1) * job->size - band->first, band->to);
        float sum = 0.0f, top = 0.0f;
        for (; stop - j >= LANES; j += LANES) {
            sum += total(load(band->sum + j));
            float high = largest(load(band->top + j));
            top = high > top ? high : top;
        }
        for (; j < stop; j++) {
            sum += band->sum[j];
            top = band->top[j] > top ? band->top[j] : top;
        }
        int64_t at = down * job->block_stride + block;
        if (job->block_sums)
            job->block_sums[at] += sum;
        if (job->block_tops)
            job->block_tops[at] = job->block_tops[at] > top ? job->block_tops[at] : top;
    }
    clear_band(band);
}

/* Rows `from` ... `to` - 1 of a panel, which lie in one row of blocks. */
static void add_to_band(const struct panel *p, struct band *band, int from, int to)
{
    int at = (int)(p->key - band->first);
    for (int j = 0; j < p->wide; j += LANES) {
        vec sum = load(band->sum + at + j), top = load(band->top + at + j);
        for (int r = from; r < to; r++) {
            vec w = load(cells(p, r) + j);
            sum += w;
            top = vmax(top, w);
        }
        store(band->sum + at + j, sum);
        store(band->top + at + j, top);
    }
    /* Columns before `skip` are not the piece's: their block may not be there. */
    band->from = (int)min(band->from, at + p->skip);
    band->to = (int)max(band->to, at + p->keys);
}

/* A row of blocks may end in the middle of a panel. */
static void add_blocks(const struct panel *p, struct band *band)
{
    int64_t size = p->job->size;
    for (int r = 0, to; r < p->rows; r = to) {
        to = (int)min(p->rows, r + size - (p->row + r) % size);
        add_to_band(p, band, r, to);
        if ((p->row + to) % size == 0)
            close_band(p->job, band, p->row + r);
    }
}

/* -- the loop -------------------------------------------------------------------------------------------------- */

struct workspace {
    float (*cell)[PITCH];
    float *queries, *keys;
    struct band *band;
};

static void read_panel(const struct panel *p, const struct workspace *work)
{
    const struct job *job = p->job;
    const float *queries = work->queries + (p->row - job->row_start) * job->dim;
    scores(p, queries, work->keys + (p->key - work->band->first) * job->dim);
    hide(p);
    if (job->peak)
        note_peaks(p);
    if (job->bins && job->bins_of_scores)
        count(p);
    weigh(p);
    if (job->n_columns)
        mix(p);
    if (job->column_sums)
        add_columns(p);
    if (job->diagonals)
        add_diagonals(p);
    if (job->size)
        add_blocks(p, work->band);
    if (job->top)
        list_top(p);
    if (job->bins && !job->bins_of_scores)
        count(p);
}

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

/* All rows against the keys first ... stop - 1, at most WIDTH. */
static void read_keys(const struct job *job, const struct workspace *work, int64_t first, int64_t stop)
{
    int packed = job->scores != NULL;
    work->band->first = first;
    clear_band(work->band);
    for (int64_t row = job->row_start; row < job->row_stop; row += ROWS) {
        struct panel p = {.job = job, .row = row, .rows = (int)min(ROWS, job->row_stop - row), .cell = work->cell};
        if (!find_keys(&p, first, stop)) {
            /* What was collected belongs to rows above. */
            if (job->size && row / job->size != (row + p.rows) / job->size)
                close_band(job, work->band, row);
            continue;
        }
        if (!packed)
            pack_keys(job, first, stop, work->keys);
        packed = 1;
        read_panel(&p, work);
    }
    if (job->size)
        close_band(job, work->band, job->row_stop - 1);
}

/* The next `bytes` of a block of memory, on a cache line of their own. */
static void *carve(char **block, size_t bytes)
{
    char *part = *block + (-(uintptr_t)*block & 63);
    *block = part + bytes;
    return part;
}

/* 0, or 1 if there is no memory left. */
static int fold(const struct job *job)
{
    if (job->n_runs == 0 || job->row_start >= job->row_stop)
        return 0;
    int64_t rows = (job->row_stop - job->row_start + ROWS - 1) / ROWS * ROWS, dim = job->scores ? 0 : job->dim;
    size_t panel = sizeof(float[ROWS][PITCH]), queries = sizeof(float) * rows * dim, keys = sizeof(float) * WIDTH * dim;
    char *block = malloc(panel + queries + keys + sizeof(struct band) + 4 * 64), *next = block;
    if (!block)
        return 1;
    struct workspace work = {
        .cell = carve(&next, panel),
        .queries = carve(&next, queries),
        .keys = carve(&next, keys),
        .band = carve(&next, sizeof(struct band)),
    };
    if (!job->scores)
        pack_queries(job, work.queries);
    int64_t last = job->runs[job->n_runs - 1].stop;
    for (int64_t first = job->runs[0].first / WIDTH * WIDTH; first < last; first += WIDTH)
        read_keys(job, &work, first, min(first + WIDTH, last));
    free(block);
    return 0;
}

struct queue {
    const struct job *const *jobs;
    int64_t n;
    atomic_int_fast64_t next;
    atomic_int failed;
};

static void work(void *given)
{
    struct queue *queue = given;
    for (int64_t i; (i = atomic_fetch_add(&queue->next, 1)) < queue->n;)
        if (fold(queue->jobs[i]))
            atomic_store(&queue->failed, 1);
}

/* Whether regard_fold can use more than one thread. */
int regard_has_threads(void)
{
    return GOMP_parallel != NULL;
}

/* Does n jobs, of which no two write to the same place; 0, or 1 if there was no memory left. */
int regard_fold(const struct job *const *jobs, int64_t n, unsigned threads)
{
    struct queue queue = {.jobs = jobs, .n = n};
    if (threads > 1 && n > 1 && regard_has_threads())
        GOMP_parallel(work, &queue, threads, 0);
    else
        work(&queue);
    return atomic_load(&queue.failed);
}

/* e^x of n numbers, for tests. */
void regard_exp(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        float part[LANES] = {0};
        memcpy(part, x + i, sizeof(float) * min(LANES, n - i));
        store(part, vexp(vmax(load(part), splat(LOWEST))));
        memcpy(y + i, part, sizeof(float) * min(LANES, n - i));
    }
}

const char *regard_isa(void) { return ISA; }

/* A library and its caller must mean the same by a job. */
int64_t regard_job_size(void) { return sizeof(struct job); }
