"""Starts keras_ring in TensorFlow and Keras when a program has them.

install        changes of TensorFlow and Keras that a job needs
saved_classes  registration of the classes that saved models name
"""
