"""Standardised observations."""

import numpy as np

from vinerl.data import normalise

DRAW = np.random.default_rng(0)
OBS = {
    "camera": DRAW.integers(0, 256, (500, 4, 4, 3)).astype(np.uint8),
    "joints": (np.array([3.0, -1000.0]) + np.array([2.0, 0.5]) * DRAW.normal(size=(500, 2))).astype(
        np.float32
    ),
    "still": np.full((500, 1), 7.0, np.float32),
}


def test_observations_come_out_with_mean_0_and_deviation_1():
    scaled = normalise.fit(OBS)(OBS)["joints"]
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-3)
    assert scaled.dtype == np.float32


def test_the_statistics_are_those_of_float64():
    fitted = normalise.fit(OBS)
    exact = OBS["joints"].astype(np.float64)
    np.testing.assert_allclose(fitted.mean["joints"], exact.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(fitted.std["joints"], exact.std(axis=0), rtol=1e-6)
    assert fitted.mean["joints"].dtype == fitted.std["joints"].dtype == np.float32


def test_a_coordinate_that_never_changes_is_only_centred():
    fitted = normalise.fit(OBS)
    np.testing.assert_array_equal(fitted(OBS)["still"], 0)
    moved = OBS | {"still": np.full((1, 1), 9.0, np.float32)}
    np.testing.assert_array_equal(fitted(moved)["still"], 2)


def test_pictures_stay_as_they_are():
    fitted = normalise.fit(OBS)
    after = fitted(OBS)["camera"]
    assert after.dtype == np.uint8
    np.testing.assert_array_equal(after, OBS["camera"])
    assert fitted.mean["camera"].shape == (4, 4, 3)
    assert (fitted.mean["camera"] == 0).all()
    assert (fitted.std["camera"] == 1).all()


def test_new_observations_are_scaled_by_the_old_statistics():
    obs = np.array([[0.0], [2.0]], np.float32)
    fitted = normalise.fit(obs)
    np.testing.assert_allclose(fitted(np.array([[3.0], [-1.0]], np.float32)), [[2.0], [-2.0]])
