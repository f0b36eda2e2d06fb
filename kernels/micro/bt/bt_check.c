#include "bt_check.h"

#include <math.h>

static const double tolerance = 1e-8;

const char *const bt_class_names[BT_CLASSES] = {"S", "W", "A", "B", "C"};

/* Published values of NPB 3.4 at the end of all iterations. */
const BtClass bt_classes[BT_CLASSES] = {
    {12,
     60,
     0.01,
     {0.17034283709541312, 0.012975252070034096, 0.032527926989486054, 0.0264364212751668,
      0.1921178413174443},
     {0.0004997691334581158, 4.519566678296193e-05, 7.397376517292135e-05, 7.382123863243973e-05,
      0.0008926963098749145}},
    {24,
     200,
     0.0008,
     {112.5590409344, 11.80007595731, 27.10329767846, 24.69174937669, 263.8427874317},
     {4.419655736008, 0.4638531260002, 1.011551749967, 0.9235878729944, 10.18045837718}},
    {64,
     200,
     0.0008,
     {108.06346714637264, 11.319730901220813, 25.974354511582465, 23.66562254467891, 252.78963211748345},
     {4.2348416040525025, 0.443902824969957, 0.9669248013634565, 0.8830206303976548, 9.737990177082928}},
    {102,
     200,
     0.0003,
     {1423.3597229287254, 99.33052259015024, 356.46025644535285, 324.8544795908409, 3270.7541254659363},
     {52.96984714093686, 4.463289611567067, 13.122573342210174, 12.006925323559145, 124.59576151035986}},
    {162,
     200,
     0.0001,
     {6239.8116551764615, 507.93239190423964, 1542.3530093013596, 1330.238792929119, 11604.087428436455},
     {164.62008369091265, 11.497107903824313, 41.20744620746151, 37.08765105969417, 362.11053051841265}},
};

static void add_errors(const Cells *cells, const Cell *cell, double sum[CFD_FIELDS]) {
    double last = cells->n - 1, exact[CFD_FIELDS];
    for (int k = 0; k < cell->count[Z]; k++)
        for (int j = 0; j < cell->count[Y]; j++)
            for (int i = 0; i < cell->count[X]; i++) {
                const double *u = cell->u + point_at(cell, i, j, k);
                cfd_exact((cell->first[X] + i) / last, (cell->first[Y] + j) / last,
                          (cell->first[Z] + k) / last, exact);
                for (int m = 0; m < CFD_FIELDS; m++) {
                    double difference = u[m * cell->field] - exact[m];
                    sum[m] += difference * difference;
                }
            }
}

static void add_residuals(const Cell *cell, double sum[CFD_FIELDS]) {
    for (int k = cell->begin[Z]; k < cell->end[Z]; k++)
        for (int m = 0; m < CFD_FIELDS; m++)
            for (int j = cell->begin[Y]; j < cell->end[Y]; j++) {
                const double *rhs = cell->rhs + point_at(cell, 0, j, k) + m * cell->field;
                for (int i = cell->begin[X]; i < cell->end[X]; i++)
                    sum[m] += rhs[i] * rhs[i];
            }
}

void bt_norms(Flow *flow, double residual[CFD_FIELDS], double error[CFD_FIELDS]) {
    double sum[2][CFD_FIELDS] = {{0}}, inner = pow(flow->cells.n - 2, AXES);
    bt_residual(flow);
    for (int s = 0; s < flow->cells.q; s++) {
        add_residuals(&flow->cells.cell[s], sum[0]);
        add_errors(&flow->cells, &flow->cells.cell[s], sum[1]);
    }
    MPI(MPI_Allreduce(MPI_IN_PLACE, sum, 2 * CFD_FIELDS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    for (int m = 0; m < CFD_FIELDS; m++) {
        residual[m] = sqrt(sum[0][m] / inner) / flow->dt;
        error[m] = sqrt(sum[1][m] / inner);
    }
}

static bool all_near(const double found[CFD_FIELDS], const double expected[CFD_FIELDS]) {
    bool near = true;
    for (int m = 0; m < CFD_FIELDS; m++)
        near = near && fabs((found[m] - expected[m]) / expected[m]) <= tolerance;
    return near;
}

static void add_fields(Text *text, const char *name, const double fields[CFD_FIELDS]) {
    text_add(text, "\"%s\":[", name);
    for (int m = 0; m < CFD_FIELDS; m++) {
        text_add(text, m ? "," : "");
        json_number(text, fields[m]);
    }
    text_add(text, "]");
}

bool bt_check(Flow *flow, size_t class, Text *expected, Text *found) {
    const BtClass *published = &bt_classes[class];
    double residual[CFD_FIELDS], error[CFD_FIELDS];
    bt_norms(flow, residual, error);
    text_add(expected, "\"class\":\"%s\",", bt_class_names[class]);
    add_fields(expected, "residual_rms", published->residual);
    text_add(expected, ",");
    add_fields(expected, "error_rms", published->error);
    text_add(expected, ",\"relative_tolerance\":%g", tolerance);
    add_fields(found, "residual_rms", residual);
    text_add(found, ",");
    add_fields(found, "error_rms", error);
    return all_near(residual, published->residual) && all_near(error, published->error);
}
