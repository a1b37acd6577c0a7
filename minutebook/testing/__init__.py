"""Doubles and contract suites for tests of applications built on minutebook.

What is here passes the suites of the ports it stands for. Nothing in it opens a
connection beyond loopback.
"""
